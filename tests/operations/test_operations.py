"""Providers as operators see to them: what is known, probes under way, results put in force."""

from __future__ import annotations

import asyncio
import json
from datetime import date
from pathlib import Path

import pytest
from accountkit import World
from operationskit import MARKET, Market, market, provider
from probekit import refused, says_yes

from causerie.errors import Forbidden, InvalidRequest, NotFound, Unauthenticated
from causerie.hosted.accounts.people import SYSTEM, Actor, actor_of
from causerie.hosted.accounts.records import AuditEntry, AuditFilter
from causerie.hosted.operations.ports import ProviderView, RouteQuery
from causerie.hosted.operations.probes import NOTHING, Results
from causerie.hosted.store.operations import SqlProbeResults
from causerie.probe.question import ProbeReply, ProbeRequest
from causerie.probe.questions import QUESTIONS

BODY = json.dumps({"model": "a/m", "messages": [{"role": "user", "content": "Hi"}]}).encode()


@pytest.fixture
async def operator(lite: World) -> Actor:
    return actor_of(await lite.person("ada", operator=True))


def marks(view: ProviderView) -> dict[str, str]:
    return {cell.parameter: cell.mark for cell in view.models[0].cells}


async def test_providers_are_shown_as_the_configuration_knows_them(
    lite: World, operator: Actor, tmp_path: Path
) -> None:
    async with market(lite, tmp_path) as made:
        north, south = await made.services.providers(operator)
    assert (north.name, north.dialect, north.max_concurrent) == ("north", "vllm", 8)
    [target] = north.targets
    assert (target.name, target.state, target.in_flight) == ("north/m", "up", 0)
    served = {one.model: one for one in target.serves}
    assert served["pool"].weight == 3
    price = served["a/m"].price
    assert price is not None
    assert (price.prompt, price.completion, price.request) == ("0.4", "1.2", "0")
    seen = marks(north)
    assert {seen[name] for name in ("tools", "seed", "max_completion_tokens", "reasoning")} == {
        "yes"
    }
    assert seen["logprobs"] == "no"
    assert seen["logit_bias"] == "no"
    assert set(marks(south).values()) == {"unknown"}
    words = {cell.parameter: cell.words for cell in north.models[0].cells}
    assert words["top_k"] == "not among the measured parameters"
    assert north.models[0].probed == date(2026, 10, 1)


async def test_only_operators_are_answered(lite: World, tmp_path: Path) -> None:
    owner = await lite.person("owner")
    await lite.project(owner=owner)
    async with market(lite, tmp_path) as made:
        services, actor = made.services, actor_of(owner)
        for refused_call in (
            lambda: services.providers(actor),
            lambda: services.provider(actor, "north"),
            lambda: services.probe(actor, "north", "m"),
            lambda: services.cancel(actor, "north"),
            lambda: services.use(actor, "north", "m"),
            lambda: services.explain(actor, RouteQuery(BODY)),
        ):
            with pytest.raises(Forbidden):
                await refused_call()
        assert made.examinations.last("north") is None


async def test_a_probe_is_carried_out_kept_and_put_in_force(
    lite: World, operator: Actor, tmp_path: Path
) -> None:
    async with provider() as (base_url, heads), market(lite, tmp_path, north=base_url) as made:
        begun = await made.services.probe(operator, "north", "m")
        assert begun.state == "asking"
        assert begun.questions == len(QUESTIONS)
        with pytest.raises(InvalidRequest) as twice:
            await made.services.probe(operator, "north", "m")
        assert (twice.value.status, twice.value.code) == (409, "probe_running")
        assert await made.probed("north") == "done"
        view = await made.services.provider(operator, "north")
        assert view.probe is not None
        assert view.probe.asked == len(QUESTIONS)
        assert view.probe.requests == len(heads) - 1
        [model] = view.models
        newest = model.newest
        assert newest is not None
        assert newest.complete
        assert not newest.used
        changed = {one.what: (one.before, one.now) for one in model.changes}
        assert changed["tools"] == ("yes", "no")
        assert changed["continues"] == ("yes", "no")
        assert marks(view)["tools"] == "yes"  # what is in force is as it was

        used = await made.services.use(operator, "north", "m")
        assert not used.written
        assert marks(await made.services.provider(operator, "north"))["tools"] == "yes"
        await made.put_in_by_hand(used)
        after = await made.services.provider(operator, "north")
        assert marks(after)["tools"] == "no"
        assert after.models[0].used is not None
        assert after.models[0].changes == ()
        words = {cell.parameter: cell.words for cell in after.models[0].cells}
        assert words["stop"] != "not among the measured parameters"  # but what was seen
        kept = (await Results(SqlProbeResults(lite.database)).of("north"))["m"]
        assert kept.newest == after.models[0].used
        text = made.file.read_text()
        assert "# who is asked, and what they cost" in text
        refusing = await made.services.explain(operator, RouteQuery(_with_tools()))
    [left] = refusing.routes[0].left_out
    assert left.target == "north/m"
    assert left.reasons[0].field == "tools"
    assert refusing.goes_to == "south/m"
    actions = [one.action for one in await _log(lite)]
    assert actions[:1] == ["provider.probe"]


def _with_tools() -> bytes:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    return json.dumps({**json.loads(BODY), "tools": [tool]}).encode()


async def _log(lite: World) -> list[AuditEntry]:
    return list(await lite.projects.audit(SYSTEM, None, AuditFilter()))


async def test_a_probe_can_be_cancelled(lite: World, operator: Actor, tmp_path: Path) -> None:
    reached, never = asyncio.Event(), asyncio.Event()

    async def gate(number: int) -> None:
        if number == 5:
            reached.set()
            await never.wait()

    async with (
        provider(gate=gate) as (base_url, heads),
        market(lite, tmp_path, north=base_url) as made,
    ):
        await made.services.probe(operator, "north", "m")
        await reached.wait()
        view = await made.services.provider(operator, "north")
        assert view.probe is not None
        assert 0 < view.probe.asked < len(QUESTIONS)
        assert view.probe.tokens > 0
        ended = await made.services.cancel(operator, "north")
        assert ended.state == "cancelled"
        again = await made.services.cancel(operator, "north")
        assert again.state == "cancelled"
        assert len(heads) == 5
        assert not await made.examinations.results.of("north")
        with pytest.raises(NotFound):
            await made.services.cancel(operator, "south")
        never.set()
    assert [one.action for one in await _log(lite)][:2] == [
        "provider.probe_cancel",
        "provider.probe",
    ]


async def test_a_probe_ends_with_the_service(lite: World, operator: Actor, tmp_path: Path) -> None:
    reached, never = asyncio.Event(), asyncio.Event()

    async def gate(number: int) -> None:
        reached.set()
        await never.wait()

    async with provider(gate=gate) as (base_url, _):
        async with market(lite, tmp_path, north=base_url) as made:
            await made.services.probe(operator, "north", "m")
            await reached.wait()
        last = made.examinations.last("north")
        assert last is not None
        assert last.state == "cancelled"
        never.set()


async def test_what_cannot_be_probed_says_why(lite: World, operator: Actor, tmp_path: Path) -> None:
    async def failure(made: Market) -> str:
        await made.services.probe(operator, "north", "m")
        assert await made.probed("north") == "failed"
        view = await made.services.provider(operator, "north")
        assert view.probe is not None
        return view.probe.failure

    async with market(lite, tmp_path) as made:
        assert "cannot be reached" in await failure(made)
        for name, model, error in (
            ("nowhere", "m", NotFound),
            ("causerie", "m", NotFound),
            ("north", "", InvalidRequest),
            ("north", "m" * 2000, InvalidRequest),
        ):
            with pytest.raises(error):
                await made.services.probe(operator, name, model)
    async with (
        provider(lambda ask: refused("who are you", 401)) as (base_url, _),
        market(lite, tmp_path, north=base_url) as made,
    ):
        assert "wants a key" in await failure(made)


async def test_a_result_that_is_not_whole_is_not_used(
    lite: World, operator: Actor, tmp_path: Path
) -> None:
    def broken(ask: ProbeRequest) -> ProbeReply:
        return says_yes(ask) if ask.method == "GET" else refused("out of order", 500)

    async with provider(broken) as (base_url, _), market(lite, tmp_path, north=base_url) as made:
        before = made.file.read_text()
        with pytest.raises(NotFound):
            await made.services.use(operator, "north", "m")
        await made.services.probe(operator, "north", "m")
        assert await made.probed("north") == "done"
        with pytest.raises(InvalidRequest) as refusal:
            await made.services.use(operator, "north", "m")
        assert refusal.value.code == "probe_incomplete"
        assert made.file.read_text() == before


async def test_the_lines_for_a_provider_of_the_file_are_shown(
    lite: World, operator: Actor, tmp_path: Path
) -> None:
    async with (
        provider() as (base_url, _),
        market(lite, tmp_path, north=base_url) as made,
    ):
        await made.services.probe(operator, "north", "m")
        assert await made.probed("north") == "done"
        used = await made.services.use(operator, "north", "m")
    assert not used.written
    assert "[[providers.models]]" in used.by_hand
    assert 'id = "m"' in used.by_hand
    assert "supported_parameters" in used.by_hand


async def test_a_route_is_explained_for_a_key(lite: World, operator: Actor, tmp_path: Path) -> None:
    owner = await lite.person("owner")
    project = await lite.project(owner=owner)
    narrow = await lite.key(project, owner, models=frozenset({"pool"}))
    stopped = await lite.key(project, owner)
    await lite.keys.disable(actor_of(owner), stopped.key.id)
    elsewhere = await lite.key(project, owner, doors=frozenset({"hosted"}))
    async with market(lite, tmp_path) as made:

        async def told(key: str, body: bytes = BODY) -> str | None:
            found = await made.services.explain(operator, RouteQuery(body, "router", key))
            return found.refusal.code if found.refusal is not None else found.goes_to

        assert await told("") in ("north/m", "south/m")
        assert await told(narrow.key.id) == "model_not_allowed"
        assert await told(stopped.key.id) == Unauthenticated.code
        assert await told(elsewhere.key.id) == "scope_not_allowed"
        assert await told("ck_none") == "not_found"
        assert await told("", b"{") == "invalid_json"
        assert await told("", b'{"model": "a/none", "messages": []}') != "north/m"
        with pytest.raises(NotFound):
            await made.services.explain(operator, RouteQuery(BODY, "no-such-door"))
        sessions = {
            (await made.services.explain(operator, RouteQuery(BODY, "router", "", str(n)))).goes_to
            for n in range(20)
        }
        assert sessions == {"north/m", "south/m"}
        assert made.services.doors()[0] == "router"
        assert set(made.services.models()) >= {"pool", "a/m", "a/m:free"}


async def test_a_result_that_cannot_be_read_counts_as_none(lite: World) -> None:
    await SqlProbeResults(lite.database).put("north", "m", '{"newest": {"endpoint"')
    assert await Results(SqlProbeResults(lite.database)).of("north") == {"m": NOTHING}


async def test_a_strict_request_is_explained_by_the_fields_that_it_would_be_rejected_for(
    lite: World, operator: Actor, tmp_path: Path
) -> None:
    odd = json.dumps({**json.loads(BODY), "colour": {"deep": 1}}).encode()
    listed = MARKET.replace('base_url = "{south}"', 'base_url = "{south}"\npasses = ["colour"]')
    always = MARKET.replace('name = "router"', 'name = "router"\nunknown_params = "reject"')
    strict = RouteQuery(odd, strict=True)
    async with market(lite, tmp_path) as made:
        lenient = await made.services.explain(operator, RouteQuery(odd))
        nobody = await made.services.explain(operator, strict)
    assert (lenient.refusal, lenient.unknown, lenient.strict) == (None, ("colour",), False)
    assert lenient.goes_to is not None
    assert nobody.goes_to is None
    assert nobody.strict
    assert nobody.refusal is not None
    assert (nobody.refusal.status, nobody.refusal.code) == (400, "unsupported_parameter")
    assert nobody.refusal.param == "colour"
    [route] = nobody.routes
    assert {left.target for left in route.left_out} == {"north/m", "south/m"}
    assert {why.field for left in route.left_out for why in left.reasons} == {"colour"}
    async with market(lite, tmp_path, text=listed) as made:
        one = await made.services.explain(operator, strict)
    assert (one.goes_to, one.refusal) == ("south/m", None)
    assert [left.target for left in one.routes[0].left_out] == ["north/m"]
    async with market(lite, tmp_path, text=always) as made:  # the door says so for all
        assert (await made.services.explain(operator, RouteQuery(odd))).refusal == nobody.refusal
