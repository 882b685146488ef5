"""Text engines behind a server that is kept running: a child process of ours, or one of others.

:class:`EngineSupervisor` starts the server, notices its end and starts it again;
:class:`SupervisedEngine` is one model in it. :class:`Files` notices that the files of a model
were replaced.
"""

from __future__ import annotations

import asyncio
import functools
import random
import time
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import structlog
from llguidance import LLTokenizer

from causerie.engines import base
from causerie.engines.grammar_matcher import (
    Admitted,
    Generation,
    GrammarMatcher,
    Guided,
    Spelling,
    guidance_tokenizer,
)
from causerie.engines.process import C, EngineChild, Pulse
from causerie.engines.sampling import sampling_of_folder, sampling_of_gguf
from causerie.engines.weights.errors import WeightsError
from causerie.engines.weights.folder import TOKENIZER, ModelFolder
from causerie.engines.weights.gguf import Header, gguf_parts, read_header
from causerie.engines.weights.vocabulary import TokenTable, TokenType

log = structlog.get_logger(__name__)

_FIRST_DELAY = 0.2
_LAST_DELAY = 30.0
_STABLE_SECONDS = 60.0


class GivenUp(base.EngineFailed):
    """No server can be started any more: its files are gone or were replaced."""


@dataclass(eq=False)
class EngineSupervisor(Generic[C]):
    """Keeps one child running, and restarts it; ``child`` is set only while it is ready.

    The delay before a restart doubles from 0.2 to 30 seconds, with jitter, and starts anew once a
    child has run for a minute or has finished a piece of work: it is for those that cannot serve,
    and each second of it is one without service. If a restart raises :class:`GivenUp` it is absent
    from then on.
    """

    _model_name: str
    _spawn_child: Callable[[], Awaitable[EngineChild[C]]]
    _sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    child: EngineChild[C] | None = None
    state: base.EngineState = base.EngineState.ABSENT
    restarts: int = 0
    detail: str = ""
    retry_at: float = 0.0
    _watch_task: asyncio.Task[None] | None = None
    has_answered: bool = False  # whether the child has finished a piece of work

    async def start(self) -> None:
        """Start the child; raise :class:`EngineFailed` if the first start fails."""
        self.state = base.EngineState.LOADING
        try:
            self.child = await self._spawn_child()
        except base.EngineFailed as failure:
            self.state, self.detail = base.EngineState.FAILED, str(failure)
            raise
        except asyncio.CancelledError:
            self.state = base.EngineState.ABSENT
            raise
        self.state, self.detail = base.EngineState.READY, ""
        # Owned here: `stop` cancels and awaits it.
        self._watch_task = asyncio.get_running_loop().create_task(self._watch_child(self.child))

    async def stop(self) -> None:
        task, self._watch_task = self._watch_task, None
        await end_task(task)
        child, self.child = self.child, None
        if child is not None:
            await child.stop()
        self.state = base.EngineState.ABSENT

    @property
    def restarting(self) -> bool:
        return self._watch_task is not None and not self._watch_task.done() and self.child is None

    def retry_after(self) -> float:
        return max(self.retry_at - time.monotonic(), 0.0) + 1.0

    async def _watch_child(self, child: EngineChild[C]) -> None:
        delay = _FIRST_DELAY
        started = time.monotonic()
        while True:
            why = await child.ended()
            self.child, self.state = None, base.EngineState.FAILED
            await child.stop()
            if self.has_answered or time.monotonic() - started > _STABLE_SECONDS:
                delay = _FIRST_DELAY
            self.has_answered = False
            log.warning("engine ended", model=self._model_name, why=why)
            self.detail = why
            try:
                child, delay = await self._restart_until_ready(delay)
            except GivenUp:
                self.state = base.EngineState.ABSENT
                return
            started = time.monotonic()

    async def _restart_until_ready(self, delay: float) -> tuple[EngineChild[C], float]:
        while True:
            self.state = base.EngineState.FAILED
            wait = delay * random.uniform(0.8, 1.2)
            self.retry_at = time.monotonic() + wait
            await self._sleep(wait)
            self.state = base.EngineState.LOADING
            self.restarts += 1
            delay = min(delay * 2, _LAST_DELAY)
            try:
                self.child = await self._spawn_child()
            except base.EngineFailed as failure:
                self.detail = str(failure)
                log.warning("engine did not start", model=self._model_name, why=str(failure))
                if isinstance(failure, GivenUp):
                    raise
                continue
            except Exception as failure:  # whatever it was: nobody else starts it again
                self.detail = f"the start failed: {type(failure).__name__}"
                log.exception("engine did not start", model=self._model_name)
                continue
            self.state, self.detail = base.EngineState.READY, ""
            return self.child, delay


async def end_task(task: asyncio.Task[None] | None) -> None:
    """Cancel a task, and wait for its end."""
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Files:
    """The sizes and times of files, noted before anything is read from them."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._file_stamps = {path: _size_and_time(path) for path in paths}

    def ensure_unchanged(self) -> None:
        """Raise :class:`GivenUp` if a file is gone or was replaced. Blocks.

        No engine may answer with the template of one file and the weights of another.
        """
        for path, before in self._file_stamps.items():
            stamp = _size_and_time(path)
            if stamp is None:
                raise GivenUp(f"the weights are gone: {path} does not exist any more")
            if stamp != before:
                raise GivenUp(f"the weights have changed: {path} is read anew when it is asked for")

    def mark(self, size: int) -> str:
        """Return up to eight hexadecimal digits made of ``size`` and a file's modification time."""
        modified = next((stamp[1] for stamp in self._file_stamps.values() if stamp), 0) // 10**9
        return f"{size:x}{modified:x}"[-8:]


def _size_and_time(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


_LONG = 65_536  # characters: a second at worst
_AT_ONCE = 12  # a child has 34 threads or more
_LONG_AT_ONCE = 4  # alongside them, so that short ones pass them by; threads here are 5 or more

T = TypeVar("T")


class TokenizeLimit:
    """Limit on how many texts are tokenized concurrently, in an engine's child or in threads.

    A text is tokenized to its end even if the client has disconnected, and keeps its place until
    then. Otherwise clients that disconnect early could occupy all threads.
    """

    def __init__(self) -> None:
        self._short_text_semaphore = asyncio.Semaphore(_AT_ONCE)
        self._long_text_semaphore = asyncio.Semaphore(_LONG_AT_ONCE)

    async def of(self, characters: int, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run ``read`` once a place for a text of this length is free, and return the result."""
        places = self._long_text_semaphore if characters > _LONG else self._short_text_semaphore
        await places.acquire()
        # Ends when the text is read, or with the child's connections.
        task = asyncio.get_running_loop().create_task(read())
        task.add_done_callback(lambda _: places.release())
        # What it raises is also raised to whoever still waits.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)


def characters(pieces: Sequence[str | int]) -> int:
    return sum(len(piece) for piece in pieces if isinstance(piece, str))


def ensure_can_fit(vocabulary: TokenTable, pieces: Sequence[str | int], context: int) -> None:
    """Raise :class:`PromptTooLong` if the pieces have more than ``context`` tokens for certain."""
    ids = sum(isinstance(piece, int) for piece in pieces)
    least = characters(pieces) // vocabulary.longest + ids
    if least > context:
        raise base.PromptTooLong(least, context)


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model's files on this disk, and the facts, vocabulary and sampling that they contain."""

    files: Files  # all that make it this model and no other, as they were before they were read
    facts: Header | ModelFolder
    vocabulary: Path  # the file that it is in
    sampling: base.RecommendedSampling | None


def gguf_model(
    weights: Path, ref: str, alongside: Sequence[Path] = ()
) -> tuple[Header, LocalModel]:
    """Return header and :class:`LocalModel` of a GGUF file; raise :class:`EngineFailed`.

    ``ref`` says where the weights are from, which may name the model's family. ``alongside`` are
    other files that the engine loads.
    """
    files = Files((*gguf_parts(weights), *alongside))
    try:
        header = read_header(weights)
    except (WeightsError, OSError) as error:
        raise base.EngineFailed(str(error)) from error
    sampling = sampling_of_gguf(header.sampling, (*header.names, ref, header.architecture))
    return header, LocalModel(files, header, header.path, sampling)


def folder_model(folder: ModelFolder, files: Files, ref: str) -> LocalModel:
    names = (ref, folder.path.name, folder.architecture)
    sampling = sampling_of_folder(folder.generation, names)
    return LocalModel(files, folder, folder.path / TOKENIZER, sampling)


class SupervisedEngine(ABC, Generic[C]):
    """One model in a supervised server, which a client of type ``C`` speaks to.

    A subclass says how the server is started or found, where the vocabulary is read from, and how
    one generation goes.
    """

    keeps_grammars = True  # whether a server itself follows a grammar from its beginning
    cache_tokens: int | None = None  # tokens of a cache that requests share, if it bounds them
    vision = False  # whether the model takes images
    without_vision = ""  # what an operator can do so that it takes them; empty: nothing

    def __init__(
        self,
        model: str,
        local: LocalModel,
        load_seconds: float,
        *,
        slots: int,
        memory_bytes: int,
        context: int,
    ) -> None:
        self.slots = slots
        self.memory_bytes = memory_bytes
        self.context = context  # most tokens of one request, prompt and output together
        self._model_name = model
        self._local_model = local
        self._load_seconds = load_seconds
        self.supervisor = EngineSupervisor(model, self._load_child_of_unchanged_files)
        self._running_request_count = 0
        self._pulse = Pulse()
        self._facts: base.ModelFacts | None = None
        self._cached_vocabulary: TokenTable | None = None
        self._guidance_tokenizer: LLTokenizer | None = None

    @abstractmethod
    async def tokenize(self, pieces: Sequence[str | int], *, special: bool) -> list[int]: ...

    # Raises EngineFailed.
    @abstractmethod
    async def _load_child(self) -> EngineChild[C]: ...

    # Name and version of what runs.
    @abstractmethod
    async def _engine_name_and_version(self, client: C) -> str: ...

    # Blocks; raises WeightsError or OSError.
    @abstractmethod
    def _read_vocabulary(self) -> TokenTable: ...

    # A generation whose grammar, if any, is at its beginning.
    @abstractmethod
    def _run_request(
        self, client: C, vocabulary: TokenTable, request: base.TextRequest
    ) -> Generation: ...

    # Draws one of the tokens, also where it ends in the middle of a character.
    @abstractmethod
    async def _sample_token(
        self, client: C, vocabulary: TokenTable, request: base.TextRequest, admitted: Admitted
    ) -> base.Token: ...

    @property
    def pid(self) -> int | None:
        child = self.supervisor.child
        return child.pid if child is not None else None

    async def start(self) -> None:
        try:
            await self._vocabulary()
        except (WeightsError, OSError) as error:
            raise base.EngineFailed(str(error)) from error
        await self.supervisor.start()

    async def stop(self) -> None:
        """End the child process; an external server keeps running."""
        await self.supervisor.stop()

    def status(self) -> base.EngineStatus:
        supervisor = self.supervisor
        return base.EngineStatus(
            model=self._model_name,
            state=supervisor.state,
            slots=self.slots,
            busy=min(self._running_request_count, self.slots),
            restarts=supervisor.restarts,
            idle_seconds=time.monotonic() - self._pulse.beat,
            memory_bytes=self.memory_bytes,
            context=self.context,
            cache_tokens=self.cache_tokens,
            pid=self.pid,
            detail=supervisor.detail,
        )

    async def texts(self, tokens: Sequence[int], *, visible: Sequence[str] = ()) -> list[str]:
        spelling = await self._spelling_after((), visible)
        return [spelling(token) for token in tokens]

    @asynccontextmanager
    async def generate(
        self, request: base.TextRequest
    ) -> AsyncIterator[AsyncIterator[base.Output]]:
        """Yield one completion; leaving closes the connection, which frees the slot."""
        client = self._client()
        room = self.context - len(request.prompt)
        if room < 1:
            raise base.PromptTooLong(len(request.prompt), self.context)
        if request.max_tokens > room:
            request = replace(request, max_tokens=room)
        guided = request.grammar is not None and not self.keeps_grammars
        run = (
            self._run_guided if guided or request.accepted or request.resumed else self._run_request
        )
        self._running_request_count += 1
        done = False
        try:
            async with run(client, await self._vocabulary(), request) as outputs:
                yield outputs
                done = True
        finally:
            self._running_request_count -= 1
            if done:
                self.supervisor.has_answered = True

    @asynccontextmanager
    async def _run_guided(
        self, client: C, vocabulary: TokenTable, request: base.TextRequest
    ) -> AsyncIterator[AsyncGenerator[base.Output, None]]:
        if self._guidance_tokenizer is None:
            tokenize = self._get_blocking_tokenize_function()
            self._guidance_tokenizer = await asyncio.to_thread(
                guidance_tokenizer, vocabulary, tokenize
            )
        matcher = await asyncio.to_thread(
            GrammarMatcher,
            self._guidance_tokenizer,
            vocabulary,
            request.grammar or "",
            request.accepted,
            request.resumed,
        )
        run = functools.partial(self._run_request, client, vocabulary)
        sample = functools.partial(self._sample_token, client, vocabulary)
        spelling = await self._spelling_after(request.prompt, request.visible)
        async with aclosing(Guided(run, sample, request, matcher, spelling).outputs()) as outputs:
            yield outputs

    def _get_blocking_tokenize_function(self) -> Callable[[str], list[int]]:
        # The event loop answers the thread meanwhile, so no second thread is needed.
        run = functools.partial(asyncio.run_coroutine_threadsafe, loop=asyncio.get_running_loop())
        return lambda text: run(self.tokenize([text], special=False)).result()

    async def _spelling_after(self, prior: Sequence[int], visible: Sequence[str]) -> Spelling:
        vocabulary = await self._vocabulary()
        ids = (await self.facts()).control_tokens.values()
        hidden = {id for id in ids if vocabulary.types[id] != TokenType.USER_DEFINED}
        return Spelling(vocabulary, frozenset(hidden.union(vocabulary.end)), visible, prior)

    async def _vocabulary(self) -> TokenTable:
        if self._cached_vocabulary is None:
            self._cached_vocabulary = vocabulary = await asyncio.to_thread(self._read_vocabulary)
            await asyncio.to_thread(lambda: vocabulary.digest)  # which takes a while
        return self._cached_vocabulary

    async def facts(self) -> base.ModelFacts:
        local, model = self._local_model, self._local_model.facts
        self._client()  # raises where there is none
        if self._facts is None:
            vocabulary = await self._vocabulary()
            control = await self._get_engine_control_ids_by_text(vocabulary)
            build = await self._engine_name_and_version(self._client())
            self._facts = base.ModelFacts(
                template=model.chat_template,
                context_length=self.context,
                parallel=self.slots,
                control_tokens=control,
                bos_token=vocabulary.text(vocabulary.bos),
                eos_token=vocabulary.text(vocabulary.eos),
                end_tokens=vocabulary.end,
                fingerprint=f"{build}-{model.architecture}-{local.files.mark(model.file_size)}",
                vocabulary=str(local.vocabulary),
                vision=self.vision,
                without_vision=self.without_vision,
                words=vocabulary.digest,
                size=len(vocabulary.tokens),
                sampling=local.sampling,
            )
        return self._facts

    async def _get_engine_control_ids_by_text(self, vocabulary: TokenTable) -> Mapping[str, int]:
        return vocabulary.control

    async def _load_child_of_unchanged_files(self) -> EngineChild[C]:
        ensure_unchanged = self._local_model.files.ensure_unchanged
        await asyncio.to_thread(ensure_unchanged)
        child = await self._load_child()
        try:
            await asyncio.to_thread(ensure_unchanged)  # while they were loaded, too
        except BaseException:
            await child.stop()
            raise
        return child

    def _client(self) -> C:
        supervisor = self.supervisor
        if supervisor.child is not None:
            return supervisor.child.client
        raise base.EngineFailed(
            supervisor.detail or "the engine is not running",
            loading=supervisor.state is base.EngineState.LOADING or supervisor.restarting,
            retry_after=supervisor.retry_after(),
        )
