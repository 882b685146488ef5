"""Engines that a process lends to another: the worker's client beside the parent's session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec import structs
from test_vllm_engine import GREEDY, behave, made, until
from test_vllm_pool import ONE, OTHER, Place, places

from causerie.access.admission import SlotQueue
from causerie.chat.chat import ChatOptions, TextChat
from causerie.chat.compiler import Compiler
from causerie.composition import engine_client, worker_engines
from causerie.composition.engine_client import EnginesClient
from causerie.composition.engine_server import EngineSession
from causerie.composition.targets import OwnModel
from causerie.composition.vllm_engines import vllm_engine
from causerie.composition.worker_engines import WorkerEngines
from causerie.engines.base import EngineFailed, EngineState, Output, Stopped, TextRequest, Token
from causerie.engines.fleet import Fleet, FleetEntry, ManagedEngine
from causerie.engines.vllm import server as server_module
from causerie.errors import NotFound, Overloaded
from causerie.settings import ModelSettings, Settings, Vllm
from causerie.settings.credentials import NO_CREDENTIALS


@dataclass
class Direct:
    """A line to a session in this process."""

    session: EngineSession
    tasks: set[asyncio.Task[bytes]] = field(default_factory=set)

    def ask(self, data: bytes) -> Awaitable[bytes]:
        """Who does not wait any more does not keep the session from answering."""
        task = asyncio.get_running_loop().create_task(self.session.answer(data))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return asyncio.shield(task)

    def tell(self, data: bytes) -> None:
        """Nobody waits."""
        self.session.tell(data)


@dataclass
class Worker:
    """A worker, with the session that answers it."""

    engines: WorkerEngines
    line: Direct

    async def run(self, prompt: Sequence[int], tokens: int = 2) -> list[Output]:
        """All outputs of one generation, at a place of its own."""
        async with self.engines.admission_queue("m").enter(1):
            engine = self.engines.engine("m")
            async with engine.generate(TextRequest(list(prompt), tokens, GREEDY)) as outputs:
                return [output async for output in outputs]

    async def end(self) -> None:
        """As if the process had ended."""
        for task in list(self.line.tasks):
            task.cancel()
        await asyncio.gather(*self.line.tasks, return_exceptions=True)
        await self.line.session.close()


@dataclass
class Parent:
    """The model "m" as the parent has it, on servers at these places."""

    fleet: Fleet
    own: dict[str, OwnModel]
    settings: Settings
    stack: AsyncExitStack

    async def worker(self) -> Worker:
        """Begin a worker."""
        line = Direct(EngineSession(self.own.get))
        engines = WorkerEngines(EnginesClient(line))
        await self.stack.enter_async_context(engines.running())
        engines.replace(self.settings, NO_CREDENTIALS)
        return Worker(engines, line)

    @property
    def busy(self) -> int:
        """Slots in use, as `/health` shows them."""
        return self.fleet.status()[0].busy


@asynccontextmanager
async def parent(folder: Path, every: Sequence[Place], waiting: int = 8) -> AsyncIterator[Parent]:
    """A parent whose model has four slots at each place."""
    made(folder)
    addresses = tuple(place.address for place in every)
    vllm = Vllm(addresses=addresses, parallel=4)
    model = ModelSettings(id="m", engine="vllm", ref=str(folder), vllm=vllm)

    async def make() -> ManagedEngine:
        return await vllm_engine(model, folder, None, 30.0)

    async with AsyncExitStack() as stack:
        fleet = await stack.enter_async_context(Fleet([FleetEntry("m", make)]))
        engine = fleet.engine("m")
        queue = SlotQueue("m", lambda: engine.slots, waiting, 60.0)
        chat = TextChat(engine, Compiler(workers=0))
        own = {"m": OwnModel(engine, ChatOptions(), chat, queue)}
        await engine.facts()
        await until(lambda: not fleet.status()[0].detail)  # all members are there
        yield Parent(fleet, own, Settings(models=(model,)), stack)


async def test_a_worker_knows_the_model_before_it_is_asked(tmp_path: Path) -> None:
    async with places(tmp_path, 2) as every, parent(tmp_path, every) as here:
        worker = await here.worker()
        await until(lambda: worker.engines.engine("m").known is not None)
        known = worker.engines.engine("m").known
        assert known == await here.own["m"].engine.facts()
        assert known is not None
        assert known.parallel == 8


async def test_workers_and_parent_choose_by_one_index(tmp_path: Path) -> None:
    async with places(tmp_path, 3) as every, parent(tmp_path, every) as here:
        one, other = await here.worker(), await here.worker()
        made = await one.run(ONE)
        assert [type(output) for output in made] == [Token, Token, Stopped]
        await other.run(OTHER)
        for more in range(1, 3):
            await other.run([*ONE, *[7] * more])
            await one.run([*OTHER, *[7] * more])
        async with here.own["m"].engine.generate(TextRequest([*ONE, 8], 2, GREEDY)) as outputs:
            assert [output async for output in outputs]
        spread = sorted([sorted({ids[0] for ids in place.prompts()}) for place in every])
        assert spread == [[], [100], [200]]
        assert here.busy == 0


async def test_slots_are_those_of_all_processes(tmp_path: Path) -> None:
    async with places(tmp_path, 1) as every, parent(tmp_path, every, waiting=2) as here:
        one, other = await here.worker(), await here.worker()
        queue = here.own["m"].admission_queue
        held = [worker.engines.admission_queue("m").enter(2) for worker in (one, other)]
        for lease in held:
            await lease.__aenter__()
        waits = [asyncio.create_task(worker.run(ONE)) for worker in (one, other)]
        await until(lambda: queue.waiting == 2)
        with pytest.raises(Overloaded, match="its queue") as refusal:
            await other.run(ONE)
        assert refusal.value.headers["Retry-After"]
        waits[0].cancel()  # its client leaves, and with it its place in the queue
        await until(lambda: queue.waiting == 1)
        await held[0].__aexit__(None, None, None)
        assert isinstance((await waits[1])[-1], Stopped)
        await held[1].__aexit__(None, None, None)
        await until(lambda: queue.spares)


async def test_another_member_goes_on_from_the_same_tokens(tmp_path: Path) -> None:
    async with places(tmp_path, 2) as every, parent(tmp_path, every) as here:
        worker = await here.worker()
        for place in every:
            behave(place.folder, "half")
        engine = worker.engines.engine("m")
        async with (
            worker.engines.admission_queue("m").enter(1),
            engine.generate(TextRequest(list(ONE), 30, GREEDY)) as outputs,
        ):
            began = [await anext(outputs), await anext(outputs)]
            for place in every:
                behave(place.folder, "")
            rest = [output async for output in outputs]
        again = [*ONE, *(one.id for one in began if isinstance(one, Token))]
        assert sorted(place.prompts() for place in every) == [[list(ONE)], [again]]
        stopped = rest[-1]
        assert isinstance(stopped, Stopped)
        assert (stopped.prompt_tokens, stopped.completion_tokens) == (len(ONE), 24)


async def test_a_worker_that_ends_frees_what_it_held(tmp_path: Path) -> None:
    async with places(tmp_path, 1) as every, parent(tmp_path, every) as here:
        worker, queue = await here.worker(), here.own["m"].admission_queue
        behave(every[0].folder, "endless")
        began = asyncio.Event()

        async def stream() -> None:
            engine = worker.engines.engine("m")
            async with (
                worker.engines.admission_queue("m").enter(4),
                engine.generate(TextRequest([100], 60, GREEDY, ignore_eos=True)) as outputs,
            ):
                async for _ in outputs:
                    began.set()

        running = asyncio.create_task(stream())
        await began.wait()
        assert here.busy == 1
        assert not queue.spares
        await worker.end()
        assert here.busy == 0
        assert queue.spares
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_server_whose_tokens_go_to_workers_is_no_silent_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_client, "_BEAT_SECONDS", 0.01)
    async with places(tmp_path, 1) as every, parent(tmp_path, every) as here:
        worker = await here.worker()
        behave(every[0].folder, "endless")

        def idle() -> float:
            return here.fleet.status()[0].idle_seconds or 0.0

        async with (
            worker.engines.admission_queue("m").enter(1),
            worker.engines.engine("m").generate(TextRequest([100], 60, GREEDY)) as outputs,
        ):
            await anext(outputs)
            before = asyncio.get_running_loop().time() - idle()  # of the last beat

            async def beats() -> None:
                async for _ in outputs:
                    if asyncio.get_running_loop().time() - idle() > before + 0.005:
                        return

            async with asyncio.timeout(60):
                await beats()


async def test_failures_are_those_of_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_QUESTIONS", (("/health", 0.05),))
    monkeypatch.setattr(worker_engines, "_AGAIN_SECONDS", 0.01)
    async with places(tmp_path, 1) as every, parent(tmp_path, every) as here:
        worker = await here.worker()
        behave(every[0].folder, "refuse")
        with pytest.raises(EngineFailed, match="400: not today"):
            await worker.run(ONE)
        behave(every[0].folder, "abort")
        with pytest.raises(EngineFailed, match="gave up an answer"):
            await worker.run(ONE)
        behave(every[0].folder, "")
        await every[0].go()
        await until(lambda: here.fleet.status()[0].state is not EngineState.READY)
        with pytest.raises(Overloaded, match="being loaded"):
            await worker.run(ONE)
        other = await here.worker()  # one that begins meanwhile waits for the model
        with pytest.raises(Overloaded, match="being loaded"):
            await other.run(ONE)
        await every[0].come()
        await until(lambda: other.engines.engine("m").known is not None)
        here.own.clear()
        with pytest.raises(NotFound):
            await worker.run(ONE)


async def test_the_tokenizer_is_that_of_the_loaded_model(tmp_path: Path) -> None:
    async with places(tmp_path, 1) as every, parent(tmp_path, every) as here:
        (tmp_path / "chat_template.jinja").write_text("{{ 'another' }}")
        worker = await here.worker()
        with pytest.raises(EngineFailed, match="have changed since the model was loaded"):
            await worker.run(ONE)


async def test_a_model_stays_the_same_over_reloads_that_do_not_concern_it(
    tmp_path: Path,
) -> None:
    async with places(tmp_path, 2) as every, parent(tmp_path, every) as here:
        worker = await here.worker()
        engine = worker.engines.engine("m")
        model = here.settings.models[0]
        fewer = structs.replace(model.vllm, addresses=model.vllm.addresses[:1])
        worker.engines.replace(
            Settings(models=(structs.replace(model, vllm=fewer),)), NO_CREDENTIALS
        )
        assert worker.engines.engine("m") is engine
        other = structs.replace(model.vllm, context=32)
        worker.engines.replace(
            Settings(models=(structs.replace(model, vllm=other),)), NO_CREDENTIALS
        )
        assert worker.engines.engine("m") is not engine
        assert isinstance((await worker.run(ONE))[-1], Stopped)
