"""Several processes of one model on this machine, as one engine."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
from waiting import eventually

from causerie.composition.engine_makers import parts_of, replicated
from causerie.engines import machine
from causerie.engines.base import EngineFailed, EngineState, Output, Stopped, TextRequest, Token
from causerie.engines.llamacpp.engine import LlamaCppEngine
from causerie.engines.llamacpp.options import LlamaCppOptions
from causerie.engines.machine import MachinePart, allowed_cpus, cores
from causerie.engines.pool.pool import EnginePool
from causerie.protocol.parameters import SamplingParams

pytestmark = pytest.mark.xdist_group("engine")

GREEDY = SamplingParams(temperature=0.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(gguf: Path) -> AsyncIterator[EnginePool]:
    def make(part: MachinePart) -> LlamaCppEngine:
        options = LlamaCppOptions(context=512, parallel=2, threads=1, part=part)
        return LlamaCppEngine("small", gguf, options)

    made = replicated("small", parts_of(2), make)
    assert isinstance(made, EnginePool)
    await made.start()
    await eventually(partial(all_ready, made))
    yield made
    await made.stop()


async def all_ready(pool: EnginePool) -> bool:
    return all(one.state is EngineState.READY for one in pool.status().members)


async def said(pool: EnginePool, text: str, tokens: int, kill: bool = False) -> list[Output]:
    """What follows the text; with ``kill`` whoever writes it is killed after eight tokens."""
    outputs: list[Output] = []
    request = TextRequest(await pool.tokenize([text], special=False), tokens, GREEDY)
    async with pool.generate(request) as every:
        async for output in every:
            outputs.append(output)
            if kill and len(outputs) == 8:
                (busy,) = [one for one in pool.status().members if one.busy]
                assert busy.pid is not None
                os.kill(busy.pid, signal.SIGKILL)
    return outputs


def ids(outputs: list[Output]) -> list[int]:
    return [output.id for output in outputs if isinstance(output, Token)]


@pytest.mark.asyncio(loop_scope="module")
async def test_each_has_cores_of_its_own_and_all_are_one_engine(pool: EnginePool) -> None:
    members = pool.status().members
    assert [one.model for one in members] == ["replica-1", "replica-2"]
    pids = [one.pid for one in members]
    places = [frozenset(os.sched_getaffinity(pid)) for pid in pids if pid is not None]
    if len(allowed_cpus()) > 1:
        assert not places[0] & places[1]
    assert frozenset.union(*places) == frozenset(allowed_cpus())
    facts = await pool.facts()
    assert (facts.context_length, facts.parallel, pool.slots) == (512, 4, 4)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_conversation_finds_its_prompt_again(pool: EnginePool) -> None:
    begin = "A sailor told a long story about the sea, and everybody in the harbour listened. " * 3
    for more in ("", " One day", " One day he came back"):
        *_, stopped = await said(pool, begin + more, 2)
        assert isinstance(stopped, Stopped)
    assert stopped.cached_tokens > 40


@pytest.mark.asyncio(loop_scope="module")
async def test_another_one_goes_on_where_one_is_killed(pool: EnginePool) -> None:
    whole = await said(pool, "The capital of France is", 40)
    cut = await said(pool, "The capital of France is", 40, kill=True)
    assert ids(cut)[:8] == ids(whole)[:8]
    assert len(ids(cut)) == len(ids(whole))
    end = cut[-1]
    assert isinstance(end, Stopped)
    assert end.completion_tokens == len(ids(cut))
    await eventually(partial(all_ready, pool))  # it comes back by itself


def test_parts_have_whole_cores_of_one_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cpu in range(16):  # two nodes of four cores, whose threads are numbered eight apart
        core = cpu % 8
        folder = tmp_path / f"cpu{cpu}"
        (folder / f"node{core // 4}").mkdir(parents=True)
        (folder / "topology").mkdir()
        (folder / "topology/thread_siblings_list").write_text(f"{core},{core + 8}\n")
    monkeypatch.setattr(machine, "_CPUS", tmp_path)
    monkeypatch.setattr(machine, "allowed_cpus", lambda: range(16))
    halves = [MachinePart(number, 2).cpus() for number in (0, 1)]
    assert halves == [(0, 8, 1, 9, 2, 10, 3, 11), (4, 12, 5, 13, 6, 14, 7, 15)]
    thirds = [MachinePart(number, 3).cpus() or () for number in range(3)]
    assert sorted(cpu for third in thirds for cpu in third) == list(range(16))
    assert all((cpu + 8) % 16 in third for third in thirds for cpu in third)
    assert MachinePart(0, 9).cpus() is None
    assert MachinePart().cpus() is None


def test_a_part_has_its_share_of_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu.max").write_text("600000 100000")
    many = MachinePart(0, 4 * (os.cpu_count() or 1))
    monkeypatch.setattr(machine, "own_groups", lambda: ())
    assert cores(many) == 1
    monkeypatch.setattr(machine, "own_groups", lambda: (tmp_path,))
    assert cores(MachinePart(1, 2)) <= 3


def test_a_replica_that_does_not_fit_into_its_share_is_refused(
    gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from causerie.engines.llamacpp import engine, options  # noqa: PLC0415 - both are patched

    for module in (engine, options):
        monkeypatch.setattr(module, "available_memory", lambda: 600_000_000)

    def make(part: MachinePart) -> LlamaCppEngine:
        return LlamaCppEngine("small", gguf, LlamaCppOptions(part=part))

    replicated("small", parts_of(1), make)
    with pytest.raises(EngineFailed, match="needs about"):
        replicated("small", parts_of(2), make)
