"""The pages of models and the playground, over real HTTP."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

import pytest
from consolekit import Page, Place, Visitor
from edgekit import ASK
from pageskit import LONG, Shop, Team

from causerie.engines.base import EngineState, EngineStatus
from causerie.errors import RateLimited
from causerie.hosted.accounts.people import actor_of
from causerie.hosted.console.service_view import best, model_row, target_badges

JSON = {"content-type": "application/json"}


async def ask(visitor: Visitor, team: Team, headers: dict[str, str] | None = None) -> Page:
    """A question of the playground, as its script sends it."""
    own = {"origin": f"http://127.0.0.1:{visitor.port}", "x-form-token": visitor.form_token}
    sent = {**JSON, **own, **(headers or {})}
    return await visitor.ask("POST", f"{team.path}/playground", json.dumps(ASK).encode(), sent)


async def test_models_show_what_they_support_and_how_they_stand(shop: Place, team: Team) -> None:
    visitor = await shop.visitor_of(team.viewer)
    text = (await visitor.get(f"{team.path}/models")).text
    assert "Quick, for everyday questions." in text
    assert "tool_choice" in text
    for words in ("always thinks", "33k", "$0.15", "$0.60", "free", "2 providers"):
        assert words in text, words
    assert f"playground?model={quote(LONG)}" in text
    found = (await visitor.get(f"{team.path}/models?q=everyday")).text
    assert "everyday" in found
    assert LONG not in found
    assert "No models found" in (await visitor.get(f"{team.path}/models?q=%3Cb%3Ezz")).text


async def test_a_list_says_whether_somebody_answers_and_health_who(shop: Place, team: Team) -> None:
    operator = await shop.visitor_of(team.operator)
    member = await shop.visitor_of(team.member)
    for page in ("models", "models/states"):
        for visitor in (operator, member):
            text = (await visitor.get(f"{team.path}/{page}")).text
            assert ("ready" in text, "40 %" in text) == (True, True)
            assert "connect failed" not in text
            assert "near/small" not in text
    health = (await operator.get("/operator")).text
    assert "1 of 4" in health
    assert "connect failed, next attempt in 12 s" in health


async def test_states_are_fetched_anew(shop: Place, team: Team) -> None:
    visitor = await shop.visitor_of(team.viewer)
    before = (await visitor.get(f"{team.path}/models/states")).text
    assert "loading" in before
    assert "40 %" in before
    shop.service_view.values[1] = EngineStatus("thinker", EngineState.FAILED)
    after = (await visitor.get(f"{team.path}/models/states?q=thinker")).text
    assert "failed" in after
    assert "40 %" not in after
    assert after.count("standings") == 1
    assert "<html" not in after


async def test_one_list_has_the_catalog_and_what_keys_may_name_besides(
    fair: Place, team: Team
) -> None:
    """Whoever is in a project is led from the public address to its list."""
    visitor = await fair.visitor_of(team.member)
    assert (await visitor.get("/catalog?q=iris")).target == f"{team.path}/models?q=iris"
    listed = (await visitor.get(f"{team.path}/models?sort=price")).text
    for words in ("8</strong> models", "Iris Large", "Quick, for everyday", "north, south, west"):
        assert words in listed, words
    assert re.search(r'aria-sort="ascending"><a class="sort" href="[^"]*\?sort=price"', listed)
    assert len(re.findall(r'name="model" value=', listed)) == 5  # only entries have a page
    assert listed.count(">Try it<") == 3  # the others are behind a door that has no account keys
    free = (await visitor.get(f"{team.path}/models?cost=free")).text
    assert "Qwen3 8B (free)" in free
    assert LONG in free
    assert "thinker" not in free


async def test_no_models_is_a_page_too(shop: Place, team: Team) -> None:
    assert isinstance(shop.service_view, Shop)
    shop.service_view.entries = []
    visitor = await shop.visitor_of(team.owner)
    for page in ("models", "playground"):
        assert "No models yet" in (await visitor.get(f"{team.path}/{page}")).text


@pytest.mark.parametrize("page", ["models", "models/states", "playground"])
async def test_outsiders_see_nothing(shop: Place, team: Team, page: str) -> None:
    visitor = await shop.visitor_of(team.outsider)
    assert (await visitor.get(f"{team.path}/{page}")).status == 404
    assert (await shop.visitor().get(f"{team.path}/{page}")).status == 303


async def test_the_playground_asks_for_the_project(shop: Place, team: Team) -> None:
    visitor = await shop.visitor_of(team.member)
    page = await visitor.get(f"{team.path}/playground?model=thinker")
    assert '<option value="thinker" selected' in page.text
    answer = await ask(visitor, team)
    assert answer.status == 200
    assert json.loads(answer.text)["choices"][0]["message"]["content"] == "Hello"
    assert shop.service_view.asked == [(team.member.id, team.project.id)]


@pytest.mark.parametrize("who", ["viewer", "operator", "outsider"])
async def test_who_may_not_ask(shop: Place, team: Team, who: str) -> None:
    visitor = await shop.visitor_of(getattr(team, who))
    answer = await ask(visitor, team)
    assert answer.status == (404 if who == "outsider" else 403)
    assert json.loads(answer.text)["error"]["message"]
    assert shop.service_view.asked == []
    if who == "viewer":
        page = await visitor.get(f"{team.path}/playground")
        assert "Sending requests takes the role member" in page.text


async def test_an_archived_project_does_not_ask(shop: Place, team: Team) -> None:
    await shop.world.projects.archive(actor_of(team.owner), team.project.id)
    visitor = await shop.visitor_of(team.owner)
    assert (await ask(visitor, team)).status == 403
    assert "The project is archived" in (await visitor.get(f"{team.path}/playground")).text
    assert shop.service_view.asked == []


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": ""},
        {"x-form-token": ""},
        {"x-form-token": "0" * 64},
        {"sec-fetch-site": "cross-site"},
    ],
    ids=str,
)
async def test_other_sites_cannot_ask(shop: Place, team: Team, headers: dict[str, str]) -> None:
    visitor = await shop.visitor_of(team.owner)
    answer = await ask(visitor, team, headers)
    assert answer.status == 403
    assert shop.service_view.asked == []


async def test_without_a_session_nothing_is_asked(shop: Place, team: Team) -> None:
    visitor = await shop.visitor_of(team.owner)
    visitor.cookies.clear()
    assert (await ask(visitor, team)).status in (401, 403)
    assert shop.service_view.asked == []


async def test_a_refusal_comes_as_the_service_says_it(shop: Place, team: Team) -> None:
    shop.service_view.pipeline.prefill = [
        RateLimited("The project may make 60 requests per minute.")
    ]
    visitor = await shop.visitor_of(team.owner)
    answer = await ask(visitor, team)
    assert answer.status == 429
    assert json.loads(answer.text)["error"]["message"].startswith("The project may make 60")


def test_standings_name_every_state() -> None:
    shop = Shop()
    names = {name: shop.answering(name) for name in ("small", "thinker")}
    found = target_badges(shop, names)
    assert [each.word for each in found["small"]] == ["ready", "down"]
    assert [(each.word, each.progress) for each in found["thinker"]] == [("loading", 0.4)]
    assert [each.word for each in best(found["small"])] == ["ready"]
    assert best(()) == ()
    shop.values = [EngineStatus("small", EngineState.ABSENT)]
    shop.target_states = []
    assert [each.word for each in target_badges(shop, names)["small"]] == ["asleep", "not known"]


def test_an_entry_that_says_little_is_shown_too() -> None:
    bare = model_row({"id": "m"})
    assert (bare.name, bare.price, bare.context, list(bare.groups)) == ("m", None, None, [])
    assert model_row({"id": "m", "pricing": {"prompt": "much", "completion": "1"}}).price is None
