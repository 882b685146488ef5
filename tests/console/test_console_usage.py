"""The page of usage: sums that are the records' own, ranges, charts, CSV, and who may see them."""

from __future__ import annotations

import csv
import io
import itertools
import re
import threading
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from html import escape
from typing import Any
from urllib.parse import quote

import pytest
from casekit import each_of
from consolekit import Place
from hypothesis import given
from hypothesis import strategies as st
from ledgerkit import record
from pageskit import LONG, Team, with_history

from causerie.errors import InvalidRequest, StoreUnavailable
from causerie.hosted.accounts.people import Actor, actor_of
from causerie.hosted.accounts.usage import Step, UsageQuery, UsageSum
from causerie.hosted.console import usage as page_of_usage
from causerie.hosted.console.charts import lines, scale, stacked
from causerie.hosted.console.fields import FormFields, period
from causerie.hosted.console.usage import DisplayNames
from causerie.hosted.store.usage import SqlUsage
from causerie.http.pages.assets import Statics
from causerie.http.pages.branding import Branding
from causerie.http.pages.templating import environment, seconds, short
from causerie.metering.ledger import UsageRecord
from causerie.protocol.money import rounded

NOON = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)
DAY = 86_400_000_000


def within(records: list[UsageRecord], since: datetime) -> list[UsageRecord]:
    """Those from a moment on."""
    return [each for each in records if each.at >= since.timestamp() * 1_000_000]


def numbers(text: str) -> list[list[str]]:
    """The cells of each row of the table of sums."""
    table = text.partition("table-title")[2].partition("<tbody>")[2].partition("</tbody>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    return [
        [
            re.sub(r"<[^>]+>", "", cell.partition('<span class="facts-line">')[0]).strip()
            for cell in re.findall(r"<td.*?</td>", row, re.DOTALL)
        ]
        for row in rows
    ]


async def test_the_table_adds_up_to_the_records(shop: Place, team: Team) -> None:
    made = await with_history(shop.world, team)
    visitor = await shop.visitor_of(team.owner)
    page = await visitor.get(f"{team.path}/usage?range=30d")
    assert page.status == 200
    rows = {row[0]: row for row in numbers(page.text)}
    assert set(rows) == {"small", "thinker", LONG}
    for model, row in rows.items():
        mine = [each for each in made if each.model == model]
        assert int(row[1].replace(",", "")) == len(mine)
        assert int(row[3].replace(",", "")) == sum(each.prompt for each in mine)
        assert row[-1] == f"${sum(each.amount for each in mine).quantize(Decimal('0.01')):,}"


@pytest.mark.parametrize("by", ["model", "key", "user", "app"])
async def test_the_mean_of_all_counts_what_had_a_first_token(
    shop: Place, team: Team, by: str
) -> None:
    """However many were refused alongside it: that is no reason for it to weigh more."""
    at = int(shop.world.now.timestamp()) * 1_000_000
    slow = {"model": "thinker", "key": "ck_b", "user": "usr_b", "app": "b"}
    refused = {**slow, "status": 429, "first_token_us": None}
    one = record(project=team.project.id, at=at, **slow, first_token_us=4_000_000)
    others = [record(project=team.project.id, at=at, **refused) for _ in range(99)]
    quick = [record(project=team.project.id, at=at, first_token_us=1_000_000) for _ in range(2)]
    await SqlUsage(shop.world.database).append([one, *others, *quick])
    visitor = await shop.visitor_of(team.owner)
    page = await visitor.get(f"{team.path}/usage?by={by}")
    assert "<dt>TTFT</dt><dd>2.0 s</dd>" in page.text


@pytest.mark.parametrize("by", ["model", "key", "user", "app"])
async def test_the_csv_is_exact(shop: Place, team: Team, by: str) -> None:
    made = await with_history(shop.world, team)
    visitor = await shop.visitor_of(team.viewer)
    page = await visitor.get(f"{team.path}/usage.csv?range=7d&by={by}")
    assert page.headers["content-type"].startswith("text/csv")
    name = f"usage-project-2026-11-15-to-2026-11-21-by-{by}.csv"
    assert page.headers["content-disposition"] == f'attachment; filename="{name}"'
    rows = list(csv.DictReader(io.StringIO(page.text)))
    wanted = within(made, datetime(2026, 11, 15, tzinfo=UTC))
    assert sum(int(row["requests"]) for row in rows) == len(wanted)
    assert sum(Decimal(row["cost"]) for row in rows) == sum(each.amount for each in wanted)
    assert {row[by] for row in rows} == {getattr(each, by) for each in wanted}


@pytest.mark.parametrize("by", ["model", "key", "user", "app"])
async def test_percentiles_in_the_csv(shop: Place, team: Team, by: str) -> None:
    made = await with_history(shop.world, team)
    visitor = await shop.visitor_of(team.viewer)
    page = await visitor.get(f"{team.path}/usage.csv?range=7d&by={by}")
    rows = list(csv.DictReader(io.StringIO(page.text)))
    assert len(rows) > 3
    for row in rows:
        day = datetime.fromisoformat(row["start"]).timestamp() * 1_000_000
        times = [
            each.first_token_us / 1e6
            for each in made
            if getattr(each, by) == row[by]
            and day <= each.at < day + DAY
            and each.first_token_us is not None
        ]
        ranks = [row[f"first_token_p{share}"] for share in (50, 90, 99)]
        if by == "app" or not times:
            assert ranks == [""] * 3
        else:
            values = [float(rank) for rank in ranks]
            assert values == sorted(values)
            assert min(times) * 0.8 <= values[0] <= values[2] <= max(times) * 1.2


async def test_the_csv_is_made_in_stretches(
    shop: Place, team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two years are no single piece of work and no thousand; what breaks off is no page."""
    visitor, usage = await shop.visitor_of(team.viewer), shop.world.usage
    asked: list[UsageQuery] = []
    read = usage.sums

    async def sums(actor: Actor, project: str | None, question: UsageQuery) -> Sequence[UsageSum]:
        asked.append(question)
        if len(asked) > 20:
            raise StoreUnavailable("The database is away.")
        return await read(actor, project, question)

    monkeypatch.setattr(usage, "sums", sums)
    path = f"{team.path}/usage.csv?from=2024-11-22&to=2026-11-22&by=key"
    await visitor.get(path)
    assert [(each.until - each.since).days for each in asked[:5]] == [1, 4, 16, 64, 64]
    assert sum((each.until - each.since).days for each in asked) == 731
    assert len(asked) == 15
    assert all(one.until == other.since for one, other in itertools.pairwise(asked))
    with pytest.raises(ConnectionError):
        await visitor.get(path)


async def test_bars_are_not_added_up_in_the_loop(
    shop: Place, team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor, real = await shop.visitor_of(team.viewer), page_of_usage._add_sums_to_series
    made = set()

    def watched(*given: Any) -> None:
        made.add(threading.get_ident())
        real(*given)

    monkeypatch.setattr(page_of_usage, "_add_sums_to_series", watched)
    await visitor.get(f"{team.path}/usage?by=key")
    assert made
    assert threading.get_ident() not in made


def percentiles(text: str) -> dict[str, list[str]]:
    """The median, 90th and 99th percentile by the names of the rows that have them."""
    table = text.partition("table-title")[2].partition("<tbody>")[2].partition("</tbody>")[0]
    found = {}
    for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL):
        cells = re.findall(r'data-label="(?:Median|90th|99th)">([^<]*)<', row)
        assert len(cells) == 3
        if cells != ["–"] * 3:
            found[re.search(r'title="([^"]*)"', row)[1]] = cells  # type: ignore[index]
    return found


async def test_percentiles_by_key_and_person(shop: Place, team: Team) -> None:
    made = await with_history(shop.world, team)
    visitor = await shop.visitor_of(team.owner)
    for by in ("key", "user", "model"):
        page = await visitor.get(f"{team.path}/usage?range=30d&by={by}")
        shown = percentiles(page.text)
        assert len(shown) == len(
            {getattr(each, by) for each in made if each.first_token_us is not None}
        )
        assert set(shown) <= {row[0] for row in numbers(page.text)}
    assert "nightly batch" in percentiles((await visitor.get(f"{team.path}/usage?by=key")).text)
    by_provider = (await visitor.get(f"{team.path}/usage?by=provider")).text
    assert 'data-label="TTFT"' in by_provider, "the mean, where no percentiles are kept"
    assert 'data-label="Median"' not in by_provider


async def test_the_table_is_sorted_by_a_percentile(shop: Place, team: Team) -> None:
    waits = {"quick": 100_000, "middling": 900_000, "slow": 9_000_000, "refused": None}
    when = {"project": team.project.id, "at": int(shop.world.now.timestamp()) * 1_000_000}
    records = [
        record(model=model, first_token_us=wait, duration_us=10_000_000, **when)
        for model, wait in waits.items()
    ]
    await SqlUsage(shop.world.database).append(records)
    visitor = await shop.visitor_of(team.owner)
    for column in ("ttft", "p90", "p99"):
        page = await visitor.get(f"{team.path}/usage?sort=-{column}")
        assert [row[0] for row in numbers(page.text)] == ["slow", "middling", "quick", "refused"]


async def test_tiles_compare_with_the_period_before(shop: Place, team: Team) -> None:
    day = {"project": team.project.id, "prompt": 100, "completion": 20}
    now = int(shop.world.now.timestamp()) * 1_000_000
    before = [record(at=now - 8 * DAY, **day), record(at=now - 9 * DAY, status=502, **day)]
    await SqlUsage(shop.world.database).append(before + [record(at=now, **day) for _ in range(3)])
    visitor = await shop.visitor_of(team.owner)
    text = (await visitor.get(f"{team.path}/usage?range=7d")).text
    tiles = text.partition('<dl class="tiles')[2].partition("</dl>")[0]
    assert tiles.count("50 % more") == 3, "cost, tokens and requests"
    assert "50.0 % before" in tiles, "errors"
    assert "15 ms before" in tiles, "the mean time to the first token"


async def test_times_of_the_playground_have_no_key(shop: Place, team: Team) -> None:
    at = int(NOON.timestamp()) * 1_000_000 - 1
    used = record(project=team.project.id, key="", user=team.owner.id, at=at)
    await SqlUsage(shop.world.database).append([used])
    visitor = await shop.visitor_of(team.owner)
    page = await visitor.get(f"{team.path}/usage?by=key")
    assert [*percentiles(page.text)] == ["playground"]
    page = await visitor.get(f"{team.path}/usage?by=model")
    assert [*percentiles(page.text)] == ["small"]


async def test_every_choice_of_the_page_leads_somewhere(shop: Place, team: Team) -> None:
    await with_history(shop.world, team)
    visitor = await shop.visitor_of(team.owner)
    page = await visitor.get(f"{team.path}/usage")
    links = {link.replace("&amp;", "&") for link in re.findall(r'href="(\?[^"]+)"', page.text)}
    assert len(links) >= 4 + 4 + 3
    for link in sorted(links):
        shown = await visitor.get(f"{team.path}/usage{link}")
        assert shown.status == 200, link
        assert '<svg class="chart-box"' in shown.text, link


async def test_one_day_is_shown_by_the_hour(shop: Place, team: Team) -> None:
    await with_history(shop.world, team)
    visitor = await shop.visitor_of(team.owner)
    page = await visitor.get(f"{team.path}/usage?range=24h")
    assert page.text.count('<g class="chart-column"') == 2 * 24
    assert 'data-look="hour"' in page.text


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("range=forever", "range"),
        ("from=yesterday", "from"),
        ("from=2026-11-20&to=2026-11-10", "from"),
        ("from=1999-01-01&to=2026-11-10", "from"),
        ("from=9999-12-31&to=9999-12-31", "from"),
        ("to=9999-12-31", "to"),
        ("to=0001-01-02", "to"),
        ("metric=fame", "metric"),
        ("by=door", "by"),
    ],
)
async def test_what_makes_no_sense_is_said(shop: Place, team: Team, query: str, field: str) -> None:
    visitor = await shop.visitor_of(team.owner)
    page = await visitor.get(f"{team.path}/usage?{query}")
    assert page.status == 400
    assert "<h1>" in page.text


async def test_a_project_without_requests_says_so(shop: Place, team: Team) -> None:
    visitor = await shop.visitor_of(team.owner)
    page = await visitor.get(f"{team.path}/usage")
    assert "No requests in this period" in page.text
    assert "<table" not in page.text


@pytest.mark.parametrize(
    ("who", "status"),
    [("owner", 200), ("member", 200), ("viewer", 200), ("operator", 200), ("outsider", 404)],
)
async def test_who_may_see_it(shop: Place, team: Team, who: str, status: int) -> None:
    await with_history(shop.world, team)
    visitor = await shop.visitor_of(getattr(team, who))
    for path in ("usage", "usage.csv", "activity"):
        assert (await visitor.get(f"{team.path}/{path}")).status == status


async def test_the_whole_service_is_for_operators(shop: Place, team: Team) -> None:
    await with_history(shop.world, team)
    operator, owner = await shop.visitor_of(team.operator), await shop.visitor_of(team.owner)
    paths = ("/operator/usage", "/operator/usage?by=project")
    for path in (*paths, "/operator/usage.csv", "/operator/usage.csv?by=user"):
        assert (await owner.get(path)).status == 403
        assert (await operator.get(path)).status == 200
    assert (await owner.get("/operator/activity")).status == 403
    assert team.project.name in (await operator.get("/operator/usage?by=project")).text


async def test_sums_lead_to_what_they_are_made_of(shop: Place, team: Team) -> None:
    made = await with_history(shop.world, team)
    operator = await shop.visitor_of(team.operator)
    service = (await operator.get("/operator/usage?by=project&range=30d")).text
    address = f"{team.path}/usage?range=30d&metric=cost&by=key"
    assert escape(address) in service
    one = next(each for each in within(made, NOON - timedelta(days=9)) if each.key)
    requests = f"{team.path}/activity?range=30d&key={one.key}"
    keys = (await operator.get(address)).text
    failed = f"{team.path}/activity?range=30d&failures=yes"
    for way in (requests, f"{requests}&failures=yes", failed):
        assert f'href="/console{escape(way)}"' in keys
    within_a_model = f"{address}&model={quote(one.model, safe='')}"
    one_model = f"{requests}&model={quote(one.model, safe='')}"
    assert escape(one_model) in (await operator.get(within_a_model)).text
    assert one.request_id in (await operator.get(one_model)).text


@pytest.mark.parametrize(
    ("name", "word"), [('Ünï "x"; $(rm)/../', "n-x-rm"), ("日本", "project"), ("a" * 99, "a" * 60)]
)
async def test_the_csv_of_any_project_has_the_name_of_a_file(
    shop: Place, team: Team, name: str, word: str
) -> None:
    await shop.world.projects.rename(actor_of(team.owner), team.project.id, name)
    owner = await shop.visitor_of(team.owner)
    page = await owner.get(f"{team.path}/usage.csv?from=2026-10-01&to=2026-10-31&by=user")
    file = f"usage-{word}-2026-10-01-to-2026-10-31-by-user.csv"
    assert page.headers["content-disposition"] == f'attachment; filename="{file}"'


async def test_the_percentiles_of_the_whole_service_come_after_the_page(
    shop: Place, team: Team
) -> None:
    await with_history(shop.world, team)
    operator = await shop.visitor_of(team.operator)
    page = (await operator.get("/operator/usage?by=project&range=30d")).text
    later = "/operator/usage?range=30d&amp;metric=cost&amp;by=project&amp;page=1&amp;times=yes"
    assert page.count(later) == 2  # for scripts, and as a link
    assert 'data-label="Median"' not in page
    shown = (await operator.get(later.replace("&amp;", "&"))).text
    assert 'data-label="Median"' in shown
    assert "times=yes&amp;sort=-p90" in shown, "sorting keeps them"
    script = {"hx-request": "true"}
    part = (await operator.get(later.replace("&amp;", "&"), headers=script)).text
    assert 'data-label="Median"' not in part
    [table] = re.findall(r'href="([^"]+)#table-title">By project</a>', part)
    again = await operator.get(table.replace("&amp;", "&").removeprefix("/console"))
    assert 'data-label="Median"' in again.text


async def test_hostile_names_stay_text(shop: Place, team: Team) -> None:
    name = "<script>alert(1)</script>"
    key = await shop.world.key(team.project, team.owner, name=name)
    formula = record(
        project=team.project.id,
        key=key.key.id,
        app="<b>app</b>",
        model="=cmd|' /C calc'!A0",
        at=int(NOON.timestamp()),
    )
    await SqlUsage(shop.world.database).append([_at_noon(formula)])
    visitor = await shop.visitor_of(team.owner)
    for path in (
        "usage?by=key",
        "usage?by=model",
        "usage?by=app",
        "activity",
        "activity?model=%3Cb%3E",
    ):
        page = await visitor.get(f"{team.path}/{path}")
        assert page.status == 200
        assert "<script>alert" not in page.text
        assert "<b>" not in page.text
    text = (await visitor.get(f"{team.path}/usage.csv?by=model")).text
    assert "'=cmd" in text
    assert "\n=cmd" not in text
    assert ",=cmd" not in text


def _at_noon(each: UsageRecord) -> UsageRecord:
    return record(project=each.project, key=each.key, model=each.model)


def test_names_are_gone_through_once_however_many_are_asked_for() -> None:
    """A page names each key for each day: thousands of keys would hold up every stream."""

    class Known(dict[str, str]):
        gone_through = 0

        def values(self) -> Any:
            self.gone_through += 1
            return super().values()

    known = Known(ck_a="web", ck_b="web", ck_c="batch")
    names = DisplayNames(known)
    assert [names.of(id) for id in (*known, "ck_gone", "")] == [
        *("web (ck_a)", "web (ck_b)", "batch", "ck_gone", "none")
    ]
    assert known.gone_through == 1


def test_periods_are_whole_intervals_in_utc() -> None:
    day = period(FormFields.parse("range=24h"), NOON)
    assert (day.step, len(day.starts())) == (Step.HOUR, 24)
    assert day.until == NOON.replace(hour=13, minute=0)
    week = period(FormFields.parse(""), NOON)
    assert (week.step, len(week.starts()), week.last.date()) == (Step.DAY, 7, date(2026, 11, 21))
    own = period(FormFields.parse("from=2026-11-01&to=2026-11-30"), NOON)
    assert len(own.starts()) == 30
    assert own.fields() == {"from": "2026-11-01", "to": "2026-11-30"}
    assert period(FormFields.parse("from=2026-11-21"), NOON).step is Step.HOUR
    with pytest.raises(InvalidRequest) as failure:
        period(FormFields.parse("to=2026-02-30"), NOON)
    assert failure.value.param == "to"


@each_of("highest", [1e-7, 0.003, 1, 3.9, 4, 4.1, 99, 100, 12_345_678])
def test_ticks_are_round_few_and_high_enough(highest: float) -> None:
    ticks = scale(highest)
    assert ticks[0] == 0
    assert ticks[-1] >= highest * 0.999999
    assert 2 <= len(ticks) <= 6
    steps = {round((b - a) / ticks[1], 6) for a, b in itertools.pairwise(ticks)}
    assert steps == {1.0}


@given(st.floats(1e-8, 1e10), st.sampled_from(["money", "seconds"]))
def test_no_two_ticks_have_the_same_label(highest: float, of: str) -> None:
    look = rounded if of == "money" else seconds
    highest = highest if of == "money" else max(highest, 1e-4)
    labels = [look(tick) for tick in scale(highest)]
    assert len(set(labels)) == len(labels)
    assert not any("e" in label.replace("sec", "") for label in labels)


@given(st.integers(1, 10**13))
def test_no_two_ticks_of_counts_have_the_same_label(highest: int) -> None:
    ticks = scale(highest, least=1.0)
    labels = [short(tick) for tick in ticks]
    assert len(set(labels)) == len(labels)
    assert all(tick == int(tick) for tick in ticks)


def test_bars_stand_on_each_other_and_keep_their_sum() -> None:
    starts = [NOON + timedelta(days=n) for n in range(3)]
    values = {f"model {n}": {starts[n % 3]: float(n + 1)} for n in range(12)}
    chart = stacked(starts, values)
    assert [one.colour for one in chart.series] == [1, 2, 3, 4, 5, 6, 7, 0]
    assert chart.series[-1].name == "5 others"
    filled = [value for one in chart.series for value in one.values if value]
    assert sum(filled) == sum(range(1, 13))
    made = environment(Statics("/static"), Branding())
    columns = made.get_template("parts/charts.html").module.hovers  # type: ignore[attr-defined]
    bar = re.compile(r'class="series-.*?y="([\d.]+)".*?height="([\d.]+)"')
    for column in columns(chart, str, False).split("</g>")[:3]:
        edge = 100.0
        for y, height in bar.findall(column):
            assert float(y) + float(height) == pytest.approx(edge, abs=0.01)
            edge = float(y)
        total, *numbers = re.findall(r": ([\d.]+)", column)
        assert float(total) == pytest.approx(sum(map(float, numbers)))
        assert 100.0 - edge == pytest.approx(
            sum(map(float, numbers)) / chart.ticks[-1] * 100, abs=0.01
        )
    assert stacked(starts, {}).empty


def test_a_line_shows_the_period_before() -> None:
    starts = [NOON + timedelta(days=n) for n in range(3)]
    chart = stacked(starts, {"m": {starts[0]: 2.0}}, before=[1.0, 0.0, 8.0])
    assert chart.ticks[-1] >= 8.0
    [line] = chart.before_runs
    assert len(line.split()) == 3
    assert stacked(starts, {"m": {starts[0]: 2.0}}, before=[0.0] * 3).before == ()


def test_a_line_is_broken_where_values_lack() -> None:
    starts = [NOON + timedelta(days=n) for n in range(5)]
    chart = lines(starts, {"median": {starts[0]: 1.0, starts[1]: 2.0, starts[3]: 1.0}})
    [line] = chart.series
    assert [len(run.split()) for run in line.runs] == [2, 2]
    assert not chart.empty
