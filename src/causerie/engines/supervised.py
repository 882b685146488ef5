"""Text engines behind a server that is kept running: a child process of ours, or one of others.

:class:`EngineSupervisor` starts it, notices its end and starts it again; :class:`SupervisedEngine`
is one model in it; :class:`EmbeddedEngine` has weights on this disk. :class:`Files` tells the
files that a model was read from, from others that take their places.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import structlog

from causerie.engines.base import (
    EngineFailed,
    EngineState,
    EngineStatus,
    ModelFacts,
    Output,
    RecommendedSampling,
    TextRequest,
)
from causerie.engines.process import C, EngineClient, Pulse
from causerie.engines.sampling import sampling_of_gguf
from causerie.engines.token_engine import IndexedVocabulary, TokenEngine
from causerie.engines.weights.errors import WeightsError
from causerie.engines.weights.gguf import Header, gguf_parts, read_header

log = structlog.get_logger(__name__)

_FIRST_DELAY = 0.2
_LAST_DELAY = 30.0
_STABLE_SECONDS = 60.0


class Child(Protocol):
    """A child process that is ready to serve."""

    async def ended(self) -> str:
        """Wait for its end, or until it is unusable; return why, in a few words."""
        ...

    async def stop(self) -> None:
        """End it, and wait until it has ended. May be called again."""
        ...


ChildT = TypeVar("ChildT", bound=Child)


class GivenUp(EngineFailed):
    """No child can be started any more: what it is made of is gone."""


class EngineSupervisor(Generic[ChildT]):
    """One child at a time. ``child`` is there only while it is ready.

    The delay before a restart doubles from 0.2 to 30 seconds, with jitter, and starts anew once a
    child has run for a minute or has finished a piece of work: it is for those that cannot serve,
    and each second of it is one without service. If a restart raises :class:`GivenUp` it is absent
    from then on.
    """

    def __init__(
        self,
        name: str,
        spawn: Callable[[], Awaitable[ChildT]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._name = name
        self._spawn = spawn
        self._sleep = sleep
        self._task: asyncio.Task[None] | None = None
        self.child: ChildT | None = None
        self.state = EngineState.ABSENT
        self.restarts = 0
        self.detail = ""
        self.retry_at = 0.0
        self._proved = False

    def proved(self) -> None:
        """Record that the child has finished a piece of work."""
        self._proved = True

    async def start(self) -> None:
        """Start the child; raise :class:`EngineFailed` if the first start fails."""
        self.state = EngineState.LOADING
        try:
            self.child = await self._spawn()
        except EngineFailed as failure:
            self.state, self.detail = EngineState.FAILED, str(failure)
            raise
        except asyncio.CancelledError:
            self.state = EngineState.ABSENT
            raise
        self.state, self.detail = EngineState.READY, ""
        # Owned here: `stop` cancels and awaits it.
        self._task = asyncio.get_running_loop().create_task(self._watch(self.child))

    async def stop(self) -> None:
        """End the child for good."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        child, self.child = self.child, None
        if child is not None:
            await child.stop()
        self.state = EngineState.ABSENT

    @property
    def restarting(self) -> bool:
        """Return whether the child has ended and will be restarted."""
        return self._task is not None and not self._task.done() and self.child is None

    def retry_after(self) -> float:
        """Return the seconds until the next start is tried."""
        return max(self.retry_at - time.monotonic(), 0.0) + 1.0

    async def _watch(self, child: ChildT) -> None:
        delay = _FIRST_DELAY
        started = time.monotonic()
        while True:
            why = await child.ended()
            self.child, self.state = None, EngineState.FAILED
            await child.stop()
            if self._proved or time.monotonic() - started > _STABLE_SECONDS:
                delay = _FIRST_DELAY
            self._proved = False
            log.warning("engine ended", model=self._name, why=why)
            self.detail = why
            try:
                child, delay = await self._again(delay)
            except GivenUp:
                self.state = EngineState.ABSENT
                return
            started = time.monotonic()

    async def _again(self, delay: float) -> tuple[ChildT, float]:
        while True:
            self.state = EngineState.FAILED
            wait = delay * random.uniform(0.8, 1.2)
            self.retry_at = time.monotonic() + wait
            await self._sleep(wait)
            self.state = EngineState.LOADING
            self.restarts += 1
            delay = min(delay * 2, _LAST_DELAY)
            try:
                self.child = await self._spawn()
            except EngineFailed as failure:
                self.detail = str(failure)
                log.warning("engine did not start", model=self._name, why=str(failure))
                if isinstance(failure, GivenUp):
                    raise
                continue
            except Exception as failure:  # whatever it was: nobody else starts it again
                self.detail = f"the start failed: {type(failure).__name__}"
                log.exception("engine did not start", model=self._name)
                continue
            self.state, self.detail = EngineState.READY, ""
            return self.child, delay


class Files:
    """Snapshot of files, taken before anything is read from them."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._stamps = {path: _stamp(path) for path in paths}

    def same(self) -> None:
        """Raise :class:`GivenUp` if one is gone, or another than it was. Blocks.

        Nothing is to answer with one file's template and the weights of another.
        """
        for path, before in self._stamps.items():
            stamp = _stamp(path)
            if stamp is None:
                raise GivenUp(f"the weights are gone: {path} does not exist any more")
            if stamp != before:
                raise GivenUp(f"the weights have changed: {path} is read anew when it is asked for")

    @property
    def digest(self) -> str:
        """Return a text that is another where a file is another one."""
        every = sorted((str(path), stamp) for path, stamp in self._stamps.items())
        return hashlib.blake2b(repr(every).encode(), digest_size=16).hexdigest()

    def mark(self, size: int) -> str:
        """Tells weights of ``size`` bytes from others, in eight hexadecimal digits at most."""
        modified = next((stamp[1] for stamp in self._stamps.values() if stamp), 0) // 10**9
        return f"{size:x}{modified:x}"[-8:]


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


_LONG = 65_536  # characters: a second at worst
_AT_ONCE = 12  # a child has 34 threads or more
_LONG_AT_ONCE = 4  # alongside them, so that short ones pass them by; threads here are 5 or more

T = TypeVar("T")


class Readings:
    """Texts being read; leaving one gives its place back only when it is read."""

    def __init__(self) -> None:
        self._short = asyncio.Semaphore(_AT_ONCE)
        self._long = asyncio.Semaphore(_LONG_AT_ONCE)

    async def of(self, characters: int, read: Callable[[], Awaitable[T]]) -> T:
        """Return the result of ``read`` for a text of this length, once a place is free."""
        places = self._long if characters > _LONG else self._short
        await places.acquire()

        async def reading() -> T:
            return await read()

        # Ends when the text is read, or with the child's connections.
        task = asyncio.get_running_loop().create_task(reading())
        task.add_done_callback(lambda done: _free_place(places, done))
        return await asyncio.shield(task)


def _free_place(places: asyncio.Semaphore, done: asyncio.Task[T]) -> None:
    places.release()
    if not done.cancelled():
        done.exception()  # told to whoever still waits


C_co = TypeVar("C_co", bound=EngineClient, covariant=True)


class Served(Protocol[C_co]):
    """A server that has loaded: a child of ours, or one that others run, which has no ``pid``."""

    @property
    def client(self) -> C_co: ...
    @property
    def pid(self) -> int | None: ...

    async def ended(self) -> str:
        """Wait for its end, or until it no longer answers; return why, in a few words."""
        ...

    async def stop(self) -> None:
        """Have no more to do with it; a child of ours has ended then."""
        ...


class SupervisedEngine(TokenEngine[C], Generic[C]):
    """One model in a supervised server, which a client of type ``C`` speaks to.

    A subclass says how the server is started or found, what is read from the model's
    ``files``, and how one generation goes.
    """

    def __init__(self, model: str, files: Files, load_seconds: float) -> None:
        super().__init__()
        self._model = model
        self._files = files
        self._load_seconds = load_seconds
        self._supervisor = EngineSupervisor(model, self._spawn)
        self._busy = 0
        self._pulse = Pulse()

    @property
    @abstractmethod
    def slots(self) -> int:
        """Return the number of concurrent requests."""

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """Return the estimated memory, in bytes."""

    @property
    @abstractmethod
    def context(self) -> int:
        """Return the maximum tokens of one request, prompt and output together."""

    @property
    def cache_tokens(self) -> int | None:
        """Return the tokens of a cache that requests share, if it bounds them; else ``None``."""
        return None

    @abstractmethod
    async def _child(self) -> Served[C]:
        """Return a server that has loaded; raise :class:`EngineFailed`."""

    @property
    def pid(self) -> int | None:
        """Return the process id of a child of ours, while it is ready."""
        child = self._supervisor.child
        return child.pid if child is not None else None

    @property
    def ready(self) -> bool:
        """Return whether it can generate now."""
        return self._supervisor.child is not None

    @property
    def restarts(self) -> int:
        """Return how often its server was started or reached again."""
        return self._supervisor.restarts

    async def start(self) -> None:
        """Load the model; raise :class:`EngineFailed` with the reason."""
        try:
            await self._words()
        except (WeightsError, OSError) as error:
            raise EngineFailed(str(error)) from error
        await self._supervisor.start()

    async def stop(self) -> None:
        """End the child process; an external server keeps running."""
        await self._supervisor.stop()

    def status(self) -> EngineStatus:
        """Return the current status."""
        supervisor = self._supervisor
        return EngineStatus(
            model=self._model,
            state=supervisor.state,
            slots=self.slots,
            busy=min(self._busy, self.slots),
            restarts=supervisor.restarts,
            idle_seconds=time.monotonic() - self._pulse.beat,
            memory_bytes=self.memory_bytes,
            context=self.context,
            cache_tokens=self.cache_tokens,
            pid=self.pid,
            detail=supervisor.detail,
        )

    @asynccontextmanager
    async def generate(self, request: TextRequest) -> AsyncIterator[AsyncIterator[Output]]:
        """Yield one completion; leaving closes the connection, which frees the slot."""
        client = self._client()
        self.enter()
        done = False
        try:
            async with self.completion(client, self.context, request) as outputs:
                yield outputs
                done = True  # left in peace
        finally:
            self.leave(done=done)

    def enter(self) -> None:
        """Count a completion, whoever reads it."""
        self._busy += 1

    def leave(self, *, done: bool) -> None:
        """Count the end of a completion; ``done``: a piece of work is complete."""
        self._busy -= 1
        if done:
            self._supervisor.proved()

    def beat(self) -> None:
        """Note that something has come from the server, whoever reads it."""
        self._pulse.beat = time.monotonic()

    async def _spawn(self) -> Served[C]:
        await asyncio.to_thread(self._files.same)
        child = await self._child()
        try:
            await asyncio.to_thread(self._files.same)  # all the time that it took to load them
        except BaseException:
            await child.stop()
            raise
        return child

    def _client(self) -> C:
        supervisor = self._supervisor
        if supervisor.child is not None:
            return supervisor.child.client
        raise EngineFailed(
            supervisor.detail or "the engine is not running",
            loading=supervisor.state is EngineState.LOADING or supervisor.restarting,
            retry_after=supervisor.retry_after(),
        )


class EmbeddedLaunch(Protocol):
    """Decisions that are made before a start."""

    @property
    def context(self) -> int:
        """Return the tokens of one request."""
        ...

    @property
    def parallel(self) -> int:
        """Return the number of concurrent requests."""
        ...

    @property
    def memory(self) -> int:
        """Return the estimated memory, in bytes."""
        ...


L = TypeVar("L", bound=EmbeddedLaunch)


@dataclass(frozen=True, slots=True)
class LocalModel:
    """Weights on this disk, and what they say of their model."""

    files: Files
    """All that make it this model and no other, as they were before they were read."""
    size: int
    """Of the weights, in bytes."""
    architecture: str
    chat_template: str
    """Empty if there is none."""
    vocabulary: Path
    """The file that it is in."""
    sampling: RecommendedSampling | None


def gguf_model(
    weights: Path, ref: str, alongside: Sequence[Path] = ()
) -> tuple[Header, LocalModel]:
    """Return the header of a GGUF file, and its model; raise :class:`EngineFailed`.

    ``ref`` says where the weights are from, which may name the model's family. ``alongside`` are
    other files that the engine loads.
    """
    files = Files((*gguf_parts(weights), *alongside))
    try:
        header = read_header(weights)
    except (WeightsError, OSError) as error:
        raise EngineFailed(str(error)) from error
    return header, LocalModel(
        files=files,
        size=header.file_size,
        architecture=header.architecture,
        chat_template=header.chat_template,
        vocabulary=header.path,
        sampling=sampling_of_gguf(header.sampling, (*header.names, ref, header.architecture)),
    )


class EmbeddedEngine(SupervisedEngine[C], Generic[C, L]):
    """One local model, which a child process loads as ``launch`` says."""

    def __init__(self, model: str, local: LocalModel, launch: L, load_seconds: float) -> None:
        super().__init__(model, local.files, load_seconds)
        self._local = local
        self._launch = launch
        self._facts: ModelFacts | None = None
        self._readings = Readings()

    @property
    def slots(self) -> int:
        """Return the number of concurrent requests."""
        return self._launch.parallel

    @property
    def memory_bytes(self) -> int:
        """Return the estimated memory, in bytes."""
        return self._launch.memory

    @property
    def context(self) -> int:
        """Return the maximum tokens of one request, prompt and output together."""
        return self._launch.context

    def _said(self, words: IndexedVocabulary, control: Mapping[str, int], build: str) -> ModelFacts:
        local, vocabulary = self._local, words.vocabulary
        mark = self._files.mark(local.size)
        return ModelFacts(
            template=local.chat_template,
            context_length=self.context,
            parallel=self.slots,
            control_tokens=control,
            bos_token=words.text(vocabulary.bos),
            eos_token=words.text(vocabulary.eos),
            end_tokens=vocabulary.end,
            fingerprint=f"{build}-{mark}",
            vocabulary=str(local.vocabulary),
            words=words.digest,
            size=len(vocabulary.tokens),
            sampling=local.sampling,
        )
