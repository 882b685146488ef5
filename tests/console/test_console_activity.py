"""The page of activity: every request once, found by what is known of it, and explained."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from casekit import each_of
from consolekit import Place
from ledgerkit import record
from pageskit import Team, with_history

from causerie.errors import ServiceError
from causerie.hosted.console.activity import (
    APIS,
    CODES,
    PAGE,
    ExplainedAttempt,
    RequestExplanation,
)
from causerie.hosted.store.usage import SqlUsage

SOURCE = Path(__file__).parents[2] / "src" / "causerie"


def ids(text: str) -> list[str]:
    """The request ids of a page, in their order."""
    return re.findall(r"<dt>Request ID</dt><dd><code>([^<]+)</code>", text)


async def test_pages_show_every_request_once(shop: Place, team: Team) -> None:
    made = await with_history(shop.world, team)
    visitor = await shop.visitor_of(team.owner)
    seen: list[str] = []
    path = f"{team.path}/activity?range=90d"
    for _ in range(40):
        page = await visitor.get(path)
        seen += ids(page.text)
        older = re.search(r'href="(\?[^"]+)">Older</a>', page.text)
        if older is None:
            break
        path = f"{team.path}/activity{older[1].replace('&amp;', '&')}"
    newest = sorted(made, key=lambda each: (each.at, each.id), reverse=True)
    assert seen == [each.request_id for each in newest]


@pytest.mark.parametrize(
    ("query", "fits"),
    [
        ("model=thinker", lambda each: each.model == "thinker"),
        ("status=429", lambda each: each.status == 429),
        ("failures=yes", lambda each: each.status >= 400),
        ("failures=yes&model=small", lambda each: each.status >= 400 and each.model == "small"),
        ("request_id=req-0007", lambda each: each.request_id == "req-0007"),
        ("operation=messages", lambda each: each.operation == "messages"),
        ("tag=checkout", lambda each: each.tag == "checkout"),
        ("request_id=%27+OR+1%3D1+--", lambda each: False),
        ("model=%25", lambda each: False),
    ],
)
async def test_filters(shop: Place, team: Team, query: str, fits: object) -> None:
    assert callable(fits)
    made = await with_history(shop.world, team)
    visitor = await shop.visitor_of(team.owner)
    page = await visitor.get(f"{team.path}/activity?range=90d&{query}")
    newest = sorted(filter(fits, made), key=lambda each: (each.at, each.id), reverse=True)
    assert ids(page.text) == [each.request_id for each in newest[:PAGE]]
    if not newest:
        assert "No matching requests" in page.text


async def test_a_key_narrows_it_down(shop: Place, team: Team) -> None:
    made = await with_history(shop.world, team)
    visitor = await shop.visitor_of(team.owner)
    key = next(each.key for each in made if each.key)
    page = await visitor.get(f"{team.path}/activity?range=24h&key={key}")
    shown = set(ids(page.text))
    assert shown
    assert shown <= {each.request_id for each in made if each.key == key}


async def test_an_id_is_found_whenever_it_was(shop: Place, team: Team) -> None:
    made = await with_history(shop.world, team)
    oldest = min(made, key=lambda each: each.at)
    visitor = await shop.visitor_of(team.owner)
    page = await visitor.get(f"{team.path}/activity?range=24h&request_id={oldest.request_id}")
    assert ids(page.text) == [oldest.request_id]
    assert '<details class="request" data-row open>' in page.text
    assert f"<dt>API</dt><dd>{APIS[oldest.operation]}</dd>" in page.text


async def test_a_live_page_asks_again_but_not_for_texts_that_it_would_decrypt(
    shop: Place, team: Team
) -> None:
    await with_history(shop.world, team)
    visitor = await shop.visitor_of(team.owner)
    path = f"{team.path}/activity?range=24h&model=small"
    still = (await visitor.get(path)).text
    assert "data-live" not in still
    [live] = re.findall(r'href="([^"]*live=yes)">Live</a>', still)
    text = (await visitor.get(live.replace("&amp;", "&").removeprefix("/console"))).text
    [asked] = re.findall(r'data-live hx-get="([^"]+)"', text)
    assert asked == live, "with the same filters"
    assert ">Pause</a>" in text
    assert '<option value="small">' in text, "models of the list are suggested"
    assert "data-live" not in (await visitor.get(f"{path}&live=yes&text=oak")).text


async def test_another_project_is_not_seen(shop: Place, team: Team) -> None:
    await with_history(shop.world, team)
    other = await shop.world.project(owner=team.outsider)
    visitor = await shop.visitor_of(team.outsider)
    page = await visitor.get(f"/projects/{other.id}/activity?request_id=req-0007")
    assert ids(page.text) == []
    assert (await visitor.get(f"{team.path}/activity?request_id=req-0007")).status == 404


@each_of(
    "query",
    [
        "status=abc",
        "status=2000",
        "before=1",
        "before=x~y",
        "before=1~" + "'" * 36,
        "before=1~" + "z" * 36,
    ],
)
async def test_what_makes_no_sense_is_said(shop: Place, team: Team, query: str) -> None:
    visitor = await shop.visitor_of(team.owner)
    assert (await visitor.get(f"{team.path}/activity?{query}")).status == 400


async def test_a_refusal_tells_its_limit(shop: Place, team: Team) -> None:
    words = "The key website may make 60 requests per minute; it has made 60. Try again in 7 s."
    refused = record(
        project=team.project.id,
        status=429,
        code="requests",
        finish=None,
        reason=words,
        tried=(),
        served_by="",
        first_token_us=None,
    )
    await SqlUsage(shop.world.database).append([refused])
    visitor = await shop.visitor_of(team.owner)
    text = (await visitor.get(f"{team.path}/activity")).text
    assert words in text
    assert "It was not sent to any provider" in text
    assert "until the end" in text
    assert "time to first token" not in text
    assert "<dt>Response</dt><dd>none</dd>" in text


async def test_who_asked_is_a_key_or_a_person(shop: Place, team: Team) -> None:
    key = await shop.world.key(team.project, team.owner, name="website")
    mine, by_hand = (
        record(project=team.project.id, key=id, user=team.member.id) for id in (key.key.id, "")
    )
    await SqlUsage(shop.world.database).append([mine, by_hand])
    visitor = await shop.visitor_of(team.viewer)
    text = (await visitor.get(f"{team.path}/activity")).text
    assert 'title="website"' in text
    assert 'title="member, playground"' in text


async def test_a_program_is_what_it_called_itself(shop: Place, team: Team) -> None:
    made = record(project=team.project.id, app="Robot <1>", referer="https://r.example/a")
    await SqlUsage(shop.world.database).append([made, record(project=team.project.id, app="")])
    visitor = await shop.visitor_of(team.viewer)
    text = (await visitor.get(f"{team.path}/activity")).text
    assert "Robot &lt;1&gt;" in text
    assert "https://r.example/a" in text
    assert text.count("<dt>App</dt>") == 1


async def test_a_cache_miss_says_why(shop: Place, team: Team) -> None:
    found = [record(project=team.project.id, cache_miss=miss) for miss in ("tools reordered", "")]
    await SqlUsage(shop.world.database).append(found)
    visitor = await shop.visitor_of(team.viewer)
    text = (await visitor.get(f"{team.path}/activity")).text
    assert text.count("<dt>Cache miss</dt><dd>tools reordered</dd>") == 1
    assert text.count("Cache miss") == 1


async def test_nothing_yet(shop: Place, team: Team) -> None:
    visitor = await shop.visitor_of(team.owner)
    assert "No requests in this period" in (await visitor.get(f"{team.path}/activity")).text


def test_attempts_say_why_this_target() -> None:
    found = RequestExplanation(
        record(tried=("a/m: upstream_timeout", "b: c/m: bad_gateway", "m: answered"))
    )
    assert found.attempts == [
        ExplainedAttempt("a/m", "upstream_timeout"),
        ExplainedAttempt("b: c/m", "bad_gateway"),
        ExplainedAttempt("m"),
    ]
    assert RequestExplanation(record(tried=(), served_by="m")).attempts == [ExplainedAttempt("m")]
    failed = RequestExplanation(record(tried=(), served_by="m", status=502, code="bad_gateway"))
    assert failed.attempts == [ExplainedAttempt("m", "bad_gateway")]
    assert failed.tone == "bad"


def test_times_are_parts_of_the_whole() -> None:
    found = RequestExplanation(
        record(queue_us=100, first_token_us=400, duration_us=1000, completion=7)
    )
    assert [(part.kind, part.width) for part in found.times] == [
        ("queue", 10.0),
        ("wait", 30.0),
        ("stream", 60.0),
    ]
    assert found.speed == pytest.approx(6 / 600e-6)
    silent = RequestExplanation(record(queue_us=0, first_token_us=None, duration_us=1000))
    assert [part.kind for part in silent.times] == ["wait"]
    assert silent.speed is None
    assert RequestExplanation(record(duration_us=0)).times == ()


def test_every_code_that_requests_end_with_is_explained() -> None:
    kinds = [ServiceError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    stages = ("access", "catalog", "chat", "edge", "routing", "providers", "engines", "protocol")
    raised = {
        code
        for stage in stages
        for file in (SOURCE / stage).rglob("*.py")
        for code in re.findall(r'code="([a-z_]+)"', file.read_text(encoding="utf-8"))
    }
    raised |= {kind.code for kind in kinds}
    before = {  # no record yet
        *("unknown_path", "not_found", "head_too_large", "invalid_http"),
        *("misdirected_request", "unsupported_transfer_coding", "origin_not_allowed"),
        "network_not_allowed",
    }
    unexplained = raised - set(CODES) - before
    assert unexplained == set()
