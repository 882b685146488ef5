"""Usage through the management API: sums, tables, single requests; each only of one's own."""

from __future__ import annotations

import asyncio
import csv
import io
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from accountkit import World
from edgekit import Response, parse_response, serving
from ledgerkit import NOON, record
from managekit import OPERATOR, Office, office

from causerie.errors import StoreUnavailable
from causerie.hosted.accounts.people import Project
from causerie.hosted.accounts.usage import UsageQuery, UsageSum
from causerie.hosted.management import handlers
from causerie.hosted.store import usage as stored_usage
from causerie.hosted.store.usage import SqlUsage, SqlUsageReader

HOUR = 3_600_000_000
DAY = 24 * HOUR


@pytest.fixture
async def services(world: World) -> AsyncIterator[Office]:
    async with office(world) as made:
        yield made


@pytest.fixture
async def projects(services: Office) -> tuple[Project, Project]:
    """Two, with a week of requests: an hour apart, of two models, a third of them refused."""
    owner = await services.world.person()
    made = (await services.world.project(owner=owner), await services.world.project(owner=owner))
    records = [
        record(
            project=made[n % 2].id,
            at=NOON - n * HOUR,
            model=("small", "=large()")[n % 4 // 2],
            status=429 if n % 3 == 0 else 200,
            code="requests" if n % 3 == 0 else None,
            amount=Decimal("0.001"),
        )
        for n in range(1, 169)
    ]
    await SqlUsage(services.world.database).append(records)
    return made


async def test_sums_are_of_ones_own_project(
    services: Office, projects: tuple[Project, Project]
) -> None:
    manager = await services.manager(projects[0])
    own = (await services.ask(manager, "/usage?step=all")).json()
    assert own["next"] is None
    [sum] = own["data"]
    assert (sum["requests"], sum["refused"], sum["cost"], sum["start"]) == (84, 28, "0.084", None)
    assert sum["group"] == {}
    named = await services.ask(manager, f"/usage?step=all&project={projects[0].id}")
    assert named.json() == own
    other = await services.ask(manager, f"/usage?project={projects[1].id}")
    assert (other.status, other.error["code"]) == (404, "not_found")
    [all] = (await services.ask(OPERATOR, "/usage?step=all")).json()["data"]
    assert all["requests"] == 168
    both = (await services.ask(OPERATOR, "/usage?step=all&by=project,model&model=small")).json()
    assert {each["group"]["project"] for each in both["data"]} == {each.id for each in projects}
    assert {each["group"]["model"] for each in both["data"]} == {"small"}


async def test_programs_are_told_apart(services: Office, projects: tuple[Project, Project]) -> None:
    manager = await services.manager(projects[0])
    apps = ("", "Other", "Other")
    more = [record(project=projects[0].id, at=NOON - 1, app=app) for app in apps]
    await SqlUsage(services.world.database).append(more)
    answer = (await services.ask(manager, "/usage?step=all&by=app,model&model=small")).json()
    counts = {each["group"]["app"]: each["requests"] for each in answer["data"]}
    assert counts == {"Robot": 42, "Other": 2, "": 1}
    table = (await services.ask(manager, "/usage.csv?step=all&by=app")).body.decode()
    assert table.splitlines()[0].startswith("start,app,requests")
    newest = (await services.ask(manager, "/requests?limit=3")).json()["data"]
    assert sorted(one["app"] for one in newest) == ["", "Other", "Other"]
    assert {one["referer"] for one in newest} == {"https://robot.example/"}
    tagged = record(
        project=projects[0].id, at=NOON - 1, user="usr_t", tag="night", key="", operation="messages"
    )
    await SqlUsage(services.world.database).append([tagged])
    asked = "/usage.csv?step=all&by=tag,user&user=usr_t"
    [head, row] = (await services.ask(manager, asked)).body.decode().splitlines()
    assert head.startswith("start,tag,user,requests")
    assert row.startswith(",night,usr_t,1,")
    for wish in ("tag=night", "operation=messages"):
        found = (await services.ask(manager, f"/requests?{wish}")).json()["data"]
        assert [(each["tag"], each["operation"]) for each in found] == [("night", "messages")]
    assert (await services.ask(manager, "/requests?limit=1&user=usr_t")).json()["data"][0][
        "tag"
    ] == "night"
    for query in ("by=app,key", "by=app&user=u", "by=app,tag", "by=tag,key"):
        refused = await services.ask(manager, f"/usage?{query}")
        assert (refused.status, refused.error["param"]) == (400, "by")


@pytest.mark.parametrize("step", ["hour", "day"])
async def test_pages_of_sums_are_the_whole(
    services: Office, projects: tuple[Project, Project], step: str
) -> None:
    del projects
    path = f"/usage?step={step}&by=project,model&since=2026-11-14T00:00:00Z"
    whole = (await services.ask(OPERATOR, f"{path}&limit=10000")).json()
    assert whole["next"] is None
    pages, cursor = [], ""
    while cursor is not None:
        page = (await services.ask(OPERATOR, f"{path}&limit=7&cursor={cursor}")).json()
        assert len(page["data"]) <= 7
        pages += page["data"]
        cursor = page["next"]
    assert pages == whole["data"]
    assert sum(each["requests"] for each in pages) == 168
    starts = [each["start"] for each in pages]
    assert starts == sorted(starts)


async def test_pages_are_the_whole_however_the_database_sorts(services: Office) -> None:
    """As a language does: small letters alongside capitals. A cursor has to know the same order."""
    models = ["Apple", "Zebra", "apple", "beta", "\u00e4pfel"]
    await SqlUsage(services.world.database).append([record(model=model) for model in models])
    if not services.world.database.sqlite:
        async with services.world.database.writing() as connection:
            like = 'ALTER COLUMN model TYPE text COLLATE "en-US-x-icu"'
            await connection.exec_driver_sql(f"ALTER TABLE usage_daily {like}")
    pages: list[str] = []
    cursor = ""
    while cursor is not None:
        path = f"/usage?by=model&since=2026-11-21&limit=1&cursor={cursor}"
        page = (await services.ask(OPERATOR, path)).json()
        pages += [each["group"]["model"] for each in page["data"]]
        cursor = page["next"]
    assert pages == models


async def test_the_table_is_the_sums(services: Office, projects: tuple[Project, Project]) -> None:
    del projects
    query = "step=hour&by=model,key&since=2026-11-10"
    sums = (await services.ask(OPERATOR, f"/usage?{query}&limit=10000")).json()["data"]
    answer = await services.ask(OPERATOR, f"/usage.csv?{query}")
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="usage.csv"'
    assert answer.headers["transfer-encoding"] == "chunked"
    rows = list(csv.DictReader(io.StringIO(answer.body.decode(), newline="")))
    assert len(rows) == len(sums) == 168
    for row, sum in zip(rows, sums, strict=True):
        assert row["start"] == sum["start"]
        assert row["key"] == sum["group"]["key"]
        assert row["model"].removeprefix("'") == sum["group"]["model"]
        assert row["requests"] == str(sum["requests"])
        assert row["cost"] == sum["cost"]
    # What a program for tables would run is shown instead.
    assert {row["model"] for row in rows} == {"small", "'=large()"}


async def test_a_table_that_is_not_allowed_is_no_table(
    services: Office, projects: tuple[Project, Project]
) -> None:
    manager = await services.manager(projects[0])
    answer = await services.ask(manager, f"/usage.csv?project={projects[1].id}")
    assert (answer.status, answer.headers["content-type"]) == (404, "application/json")
    wrong = await services.ask(manager, "/usage.csv?step=hour&since=1999-01-01")
    assert (wrong.status, wrong.error["param"]) == (400, "since")


async def test_nothing_used_is_an_empty_list_and_a_head(services: Office) -> None:
    assert (await services.ask(OPERATOR, "/usage?step=all")).json() == {"data": [], "next": None}
    table = await services.ask(OPERATOR, "/usage.csv")
    assert table.body.decode().splitlines()[0].startswith("start,requests,refused")
    assert len(table.body.decode().splitlines()) == 1


async def test_single_requests(services: Office, projects: tuple[Project, Project]) -> None:
    manager = await services.manager(projects[1])
    ids: list[str] = []
    cursor = ""
    while cursor is not None:
        page = (await services.ask(manager, f"/requests?limit=25&cursor={cursor}")).json()
        ids += [each["id"] for each in page["data"]]
        cursor = page["next"]
        assert all(each["project"] == projects[1].id for each in page["data"])
    assert (len(ids), len(set(ids))) == (84, 84)
    refused = (await services.ask(manager, "/requests?failures=true&limit=1000")).json()["data"]
    assert len(refused) == 28
    assert {(each["status"], each["code"]) for each in refused} == {(429, "requests")}
    same = (await services.ask(manager, "/requests?status=429&limit=1000")).json()["data"]
    assert same == refused
    one = refused[0]
    assert (one["cost"], one["queue_seconds"], one["first_token_seconds"]) == (
        "0.001",
        0.001,
        0.015,
    )
    found = await services.ask(
        OPERATOR, f"/requests?since={one['at']}&until=2026-11-21T13:00:00+00:00"
    )
    assert one["id"] in [each["id"] for each in found.json()["data"]]


async def test_how_budgets_stand(services: Office) -> None:
    project = await services.world.project(owner=await services.world.person())
    manager = await services.manager(project)
    bounds = {
        "budgets": [
            {"amount": "1", "period": "day"},
            {"amount": "1000", "unit": "tokens", "period": "never", "model": "small"},
        ]
    }
    made = await services.ask(
        manager, f"/projects/{project.id}/keys", {"name": "a", "bounds": bounds}
    )
    key = made.json()["id"]
    unused = (await services.ask(manager, f"/keys/{key}/spending")).json()
    assert unused["last_used_at"] is None
    assert [each["spent"] for each in unused["budgets"]] == ["0", "0"]
    await SqlUsage(services.world.database).append(
        [
            record(project=project.id, key=key, at=NOON - HOUR // 2, amount=Decimal("0.25")),
            record(project=project.id, key=key, at=NOON - DAY, amount=Decimal("0.5")),
            record(project=project.id, key=key, model="large"),
            record(project=project.id, key=key, status=502, amount=Decimal(0)),
            record(project=project.id),
        ]
    )
    spent = (await services.ask(manager, f"/keys/{key}/spending")).json()
    assert spent["last_used_at"] == "2026-11-21T12:00:00Z"
    by_unit = {each["unit"]: each for each in spent["budgets"]}
    assert by_unit["money"]["spent"] == "0.250123456"
    assert by_unit["money"]["resets_at"] == "2026-11-22T00:00:00Z"
    assert (by_unit["tokens"]["spent"], by_unit["tokens"]["resets_at"]) == ("240", None)
    await services.ask(OPERATOR, f"/projects/{project.id}/bounds", bounds, method="PUT")
    whole = (await services.ask(manager, f"/projects/{project.id}/spending")).json()["budgets"]
    assert {each["spent"] for each in whole} == {"0.250246912", "360"}
    other = await services.manager(
        await services.world.project(owner=await services.world.person())
    )
    for path in (f"/keys/{key}/spending", f"/projects/{project.id}/spending"):
        assert (await services.ask(other, path)).status == 404


async def test_first_tokens(services: Office, projects: tuple[Project, Project]) -> None:
    manager = await services.manager(projects[0])
    found = (await services.ask(manager, "/usage/first-token")).json()["data"]
    assert [each["model"] for each in found] == ["=large()", "small"]
    for each in found:
        assert each["p50"] == pytest.approx(0.015, rel=0.1)
        assert each["p50"] <= each["p90"] <= each["p99"]
        assert set(each) == {"model", "p50", "p90", "p99"}


async def test_first_tokens_by_key_and_person(
    services: Office, projects: tuple[Project, Project]
) -> None:
    manager = await services.manager(projects[0])
    more = [
        record(project=projects[0].id, key=key, user=user, at=NOON - 1, first_token_us=time)
        for key, user, time in (
            ("ck_b", "usr_b", 800_000),
            ("", "usr_b", 9_000_000),
        )
    ]
    await SqlUsage(services.world.database).append(more)
    wanted = {
        "key": {"": 9.0, "ck_a": 0.015, "ck_b": 0.8},
        "user": {"usr_a": 0.015, "usr_b": 9.0},
        "project": {projects[0].id: 9.0},
    }
    for by, slowest in wanted.items():
        found = (await services.ask(manager, f"/usage/first-token?by={by}")).json()["data"]
        assert [each[by] for each in found] == list(slowest)  # by name
        for each in found:
            if by != "project":
                assert each["p99"] == pytest.approx(slowest[each[by]], rel=0.2)
    [whole] = (await services.ask(manager, "/usage/first-token?by=")).json()["data"]
    assert set(whole) == {"p50", "p90", "p99"}
    for narrowed in ("key=ck_b", "user=usr_b&key=ck_b"):
        [one] = (await services.ask(manager, f"/usage/first-token?{narrowed}")).json()["data"]
        assert (one["model"], one["p50"]) == ("small", pytest.approx(0.8, rel=0.2))
    other = await services.manager(projects[1])
    [only] = (await services.ask(other, "/usage/first-token?by=key")).json()["data"]
    assert only["key"] == "ck_a"
    for query in ("by=door", "by=key,user"):
        refused = await services.ask(manager, f"/usage/first-token?{query}")
        assert (refused.status, refused.error["param"]) == (400, "by")


async def test_over_a_socket(services: Office, projects: tuple[Project, Project]) -> None:
    manager = await services.manager(projects[0])
    async with serving(services.edge) as port:
        answer = await _get(port, "/api/usage.csv?by=model", manager)
    assert answer.status == 200
    assert answer.body.startswith(b"start,model,requests")


async def test_a_table_that_breaks_off_is_seen_to(
    services: Office, projects: tuple[Project, Project], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last chunk is missing, so that nobody takes what has come for the whole."""
    del projects
    real, asked = SqlUsageReader.sums, []

    async def sums(reader: SqlUsageReader, question: UsageQuery) -> Sequence[UsageSum]:
        asked.append(question)
        if len(asked) > 3:
            raise StoreUnavailable
        return await real(reader, question)

    monkeypatch.setattr(SqlUsageReader, "sums", sums)
    async with serving(services.edge) as port:
        raw = await _raw(port, "/api/usage.csv?step=hour", OPERATOR)
    assert raw.startswith(b"HTTP/1.1 200")
    assert not raw.endswith(b"0\r\n\r\n")
    assert len(asked) == 4


async def test_a_table_of_many_sums_is_read_a_day_at_once(
    services: Office, projects: tuple[Project, Project], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are of a year, no more of them are made at once than of a day."""
    del projects
    real, asked = SqlUsageReader.sums, []
    until = datetime.fromtimestamp(NOON / 1_000_000, UTC)

    async def sums(reader: SqlUsageReader, question: UsageQuery) -> Sequence[UsageSum]:
        asked.append((question.until - question.since) / timedelta(days=1))
        found = await real(reader, replace(question, since=until - timedelta(7), until=until))
        return list(found[:1]) * 3000 if question.since > until - timedelta(days=150) else []

    monkeypatch.setattr(SqlUsageReader, "sums", sums)
    path = f"/usage.csv?since=2026-03-01T18:00:00Z&until={until:%Y-%m-%dT%H:%M:%SZ}"
    await services.ask(OPERATOR, path)
    assert asked[:6] == [0.25, 4, 16, 64, 64, 64]
    assert asked[6:9] == [21, 7, 2]
    assert set(asked[9:-1]) == {1}
    assert asked[-1] == 0.5


async def test_nothing_that_a_table_needs_much_of_is_made_in_the_loop(
    services: Office, projects: tuple[Project, Project], monkeypatch: pytest.MonkeyPatch
) -> None:
    del projects
    made = set()

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        def seen(*given: Any) -> Any:
            made.add(threading.get_ident())
            return real(*given)

        return seen

    monkeypatch.setattr(stored_usage, "_build_usage_sum", watched(stored_usage._build_usage_sum))
    monkeypatch.setattr(handlers, "_build_csv_row", watched(handlers._build_csv_row))
    await services.ask(OPERATOR, "/usage.csv?by=model")
    assert made
    assert threading.get_ident() not in made


async def test_a_database_that_is_away_is_told_before_a_table_begins(
    services: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sums(reader: SqlUsageReader, question: UsageQuery) -> Sequence[UsageSum]:
        raise StoreUnavailable

    monkeypatch.setattr(SqlUsageReader, "sums", sums)
    for path in ("/usage", "/usage.csv"):
        answer = await services.ask(OPERATOR, path)
        assert (answer.status, answer.error["code"]) == (503, "store_unavailable")
        assert int(answer.headers["retry-after"]) >= 1


async def _get(port: int, path: str, key: str) -> Response:
    return parse_response(await _raw(port, path, key))


async def _raw(port: int, path: str, key: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = ("host: localhost", f"authorization: Bearer {key}", "connection: close", "", "")
    writer.write("\r\n".join((f"GET {path} HTTP/1.1", *lines)).encode())
    async with asyncio.timeout(60):
        raw = await reader.read()
    writer.close()
    return raw


async def test_a_statement_and_requests_as_tables(services: Office) -> None:
    owner = await services.world.person()
    project = await services.world.project(owner=owner)
    made = [
        record(
            project=project.id,
            at=NOON - HOUR,
            tag="shop",
            served_by="near/gpt",
            written=7,
            operation="rerank",
        )
    ]
    await SqlUsage(services.world.database).append(made)
    manager = await services.manager(project)
    for key, path in ((manager, "/statement.csv?month=2026-11"), (OPERATOR, "/statement.csv")):
        answer = await services.ask(key, path)
        assert answer.headers["content-type"].startswith("text/csv")
        rows = list(csv.DictReader(io.StringIO(answer.body.decode())))
        lines = [(row["tag"], row["provider"], row["cache_write_tokens"]) for row in rows]
        assert lines == ([("shop", "near", "7")] if key == manager else [])  # the month before
    assert (await services.ask(manager, "/statement.csv?month=2026-13")).status == 400
    answer = await services.ask(manager, "/requests.csv?tag=shop")
    [row] = csv.DictReader(io.StringIO(answer.body.decode()))
    assert (row["operation"], row["provider"], row["cost"]) == ("rerank", "near", "0.000123456")
    assert (await services.ask(manager, "/requests.csv?limit=1")).status == 400
    [sum] = (await services.ask(manager, "/usage?step=all&by=provider")).json()["data"]
    assert (sum["group"], sum["cache_write_tokens"]) == ({"provider": "near"}, 7)
    [one] = (await services.ask(manager, "/requests")).json()["data"]
    assert one["cache_write_tokens"] == 7
