"""llama.cpp as a text engine of ours."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from llguidance import LLTokenizer

from causerie.engines.base import (
    EngineFailed,
    EngineState,
    EngineStatus,
    ModelFacts,
    Output,
    PromptTooLong,
    Sampling,
    TextRequest,
)
from causerie.engines.llamacpp.client import LlamaCppClient, Pulse
from causerie.engines.llamacpp.guide import Draw, Guide, Guided, Run, Spelling, words
from causerie.engines.llamacpp.options import Launch, LlamaCppOptions, for_machine
from causerie.engines.llamacpp.process import LlamaCppChild, spawn
from causerie.engines.llamacpp.reading import Readings
from causerie.engines.llamacpp.withheld import PartialTokens
from causerie.engines.supervisor import GivenUp, Supervisor
from causerie.engines.weights.errors import WeightsError
from causerie.engines.weights.gguf import Header, parts, read_header
from causerie.engines.weights.vocabulary import TokenType, Vocabulary, read_vocabulary

_NO_TOKEN = -1


@dataclass(frozen=True, slots=True)
class _Words:
    """The vocabulary, read once."""

    vocabulary: Vocabulary
    partial: PartialTokens
    longest: int  # bytes of a token
    digest: str


class LlamaCppEngine:
    """One model in a supervised child process.

    ``sampling`` holds the defaults for what a request leaves unset. Making one
    reads the file's header; raises :class:`EngineFailed` where it is no model.
    """

    def __init__(
        self,
        model: str,
        weights: Path,
        options: LlamaCppOptions,
        *,
        sampling: Sampling = Sampling(),  # noqa: B008 - frozen
        load_seconds: float = 600.0,
    ) -> None:
        beside = (*options.lora, options.draft)
        # As they were before they were read: a restart takes these and no others.
        self._files = _stamps((*parts(weights), *(Path(name) for name in beside if name)))
        try:
            self._header = read_header(weights)
        except (WeightsError, OSError) as error:
            raise EngineFailed(str(error)) from error
        self._model = model
        self._launch = for_machine(weights, options, self._header)
        self._sampling = sampling
        self._load_seconds = load_seconds
        self._supervisor = Supervisor(model, self._spawn)
        self._facts: ModelFacts | None = None
        self._read: _Words | None = None
        self._guidance: LLTokenizer | None = None
        self._busy = 0
        self._pulse = Pulse()
        self._readings = Readings()

    @property
    def slots(self) -> int:
        """Requests at the same time."""
        return self._launch.parallel

    @property
    def memory_bytes(self) -> int:
        """Estimated memory, in bytes."""
        return self._launch.memory

    @property
    def pid(self) -> int | None:
        """The child's process id, while it is ready."""
        child = self._supervisor.child
        return child.pid if child is not None else None

    async def start(self) -> None:
        """Load the model; raises :class:`EngineFailed` with the reason."""
        try:
            await self._words()
        except (WeightsError, OSError) as error:
            raise EngineFailed(str(error)) from error
        await self._supervisor.start()

    async def stop(self) -> None:
        """End the child process."""
        await self._supervisor.stop()

    def status(self) -> EngineStatus:
        """How it is now."""
        supervisor = self._supervisor
        return EngineStatus(
            model=self._model,
            state=supervisor.state,
            slots=self.slots,
            busy=min(self._busy, self.slots),
            restarts=supervisor.restarts,
            idle_seconds=time.monotonic() - self._pulse.beat,
            memory_bytes=self.memory_bytes,
            detail=supervisor.detail,
        )

    async def facts(self) -> ModelFacts:
        """What the header and the vocabulary say."""
        self._client()
        if self._facts is None:
            read = await self._words()
            vocabulary = read.vocabulary
            control = {**vocabulary.control(), **await self._overlooked(vocabulary)}
            facts = _facts(self._header, vocabulary, control, self._launch, self._fingerprint())
            self._facts = replace(facts, words=read.digest)
        return self._facts

    async def tokenize(self, pieces: Sequence[str | int], *, special: bool) -> list[int]:
        """Token ids; no beginning-of-text token is added.

        Raises :class:`PromptTooLong` where they cannot fit: reading the text takes its time.
        """
        least = _characters(pieces) // (await self._words()).longest
        if least > self._launch.context:
            raise PromptTooLong(least, self._launch.context)
        return await self._ids(pieces, special=special)

    async def _ids(self, pieces: Sequence[str | int], *, special: bool) -> list[int]:
        body = {"content": pieces, "parse_special": special, "add_special": False}
        answer = await self._readings.of(
            _characters(pieces), lambda: self._client().ask("POST", "/tokenize", body)
        )
        return list(answer["tokens"])

    async def texts(self, tokens: Sequence[int], *, visible: Sequence[str] = ()) -> list[str]:
        """What each token adds to the output."""
        spelling = await self._spelling(visible)
        return [spelling(token) for token in tokens]

    @asynccontextmanager
    async def generate(self, request: TextRequest) -> AsyncIterator[AsyncIterator[Output]]:
        """One completion; leaving closes the connection, which frees the slot."""
        client = self._client()
        room = self._launch.context - len(request.prompt)
        if room < 1:
            raise PromptTooLong(len(request.prompt), self._launch.context)
        if request.max_tokens > room:
            request = replace(request, max_tokens=room)
        partial = (await self._words()).partial
        run = functools.partial(
            client.complete, defaults=self._sampling, partial=partial, pulse=self._pulse
        )
        draw = functools.partial(client.draw, defaults=self._sampling)
        goes_on = request.accepted or request.begun
        made = self._guided(run, draw, request) if goes_on else run(request)
        self._busy += 1
        try:
            async with made as outputs:
                yield outputs
                self._supervisor.proved()  # left in peace: a piece of work is done
        finally:
            self._busy -= 1

    @asynccontextmanager
    async def _guided(
        self, run: Run, draw: Draw, request: TextRequest
    ) -> AsyncIterator[AsyncGenerator[Output, None]]:
        """One under a grammar that goes on behind what it has accepted."""
        vocabulary = (await self._words()).vocabulary
        if self._guidance is None:
            self._guidance = await asyncio.to_thread(words, vocabulary, self._in_thread())
        guide = await asyncio.to_thread(
            Guide,
            self._guidance,
            vocabulary,
            request.grammar or "",
            request.accepted,
            request.begun,
        )
        spelling = await self._spelling(request.visible)
        async with aclosing(Guided(run, draw, request, guide, spelling).outputs()) as outputs:
            yield outputs

    def _in_thread(self) -> Callable[[str], list[int]]:
        """Tokenisation for a thread; this loop answers it meanwhile."""
        loop = asyncio.get_running_loop()

        def tokenize(text: str) -> list[int]:
            asked = self.tokenize([text], special=False)
            return asyncio.run_coroutine_threadsafe(asked, loop).result()

        return tokenize

    async def _spelling(self, visible: Sequence[str]) -> Spelling:
        vocabulary = (await self._words()).vocabulary
        hidden = frozenset((await self.facts()).control_tokens.values())
        written = {id for id, kind in enumerate(vocabulary.types) if kind == TokenType.USER_DEFINED}
        return Spelling(vocabulary, hidden - written, visible)

    async def _words(self) -> _Words:
        if self._read is None:
            self._read = await asyncio.to_thread(_words, self._header.path)
        return self._read

    async def _spawn(self) -> LlamaCppChild:
        await self._same_files()
        child = await spawn(self._launch, self._load_seconds, self._pulse)
        try:
            await self._same_files()  # all the time that it took to load them
        except BaseException:
            await child.stop()
            raise
        return child

    async def _same_files(self) -> None:
        """Raises :class:`GivenUp` where a file is gone, or another than the header was read from.

        Nothing is to answer with one file's template and the weights of another.
        """
        for file, stamp in (await asyncio.to_thread(_stamps, self._files)).items():
            if stamp is None:
                raise GivenUp(f"the weights are gone: {file} does not exist any more")
            if stamp != self._files[file]:
                raise GivenUp(f"the weights have changed: {file} is read anew when it is asked for")

    def _fingerprint(self) -> str:
        modified = next((stamp[1] for stamp in self._files.values() if stamp), 0) // 10**9
        stamp = f"{self._header.file_size:x}{modified:x}"[-8:]
        return f"llamacpp-{version('xllamacpp')}-{self._header.architecture}-{stamp}"

    def _client(self) -> LlamaCppClient:
        supervisor = self._supervisor
        if supervisor.child is not None:
            return supervisor.child.client
        raise EngineFailed(
            supervisor.detail or "the engine is not running",
            loading=supervisor.state is EngineState.LOADING or supervisor.restarting,
            retry_after=supervisor.retry_after(),
        )

    async def _overlooked(self, vocabulary: Vocabulary) -> dict[str, int]:
        """Tokens that the file calls ordinary and the engine reads as control tokens all the same.

        It promotes words that look like the end of a text; nobody may write those.
        """
        known = set(vocabulary.control().values())
        tags = {
            id: token.decode("utf-8", "replace")
            for id, token in enumerate(vocabulary.tokens)
            if id not in known and 3 <= len(token) <= 40 and _is_tag(token)
        }
        if not tags:
            return {}
        # One question for all: a number that is no token stands between them.
        asked = [part for text in tags.values() for part in (text, _NO_TOKEN)]
        special = _parted(await self._ids(asked, special=True))
        plain = _parted(await self._ids(asked, special=False))
        return {
            text: id
            for (id, text), one, other in zip(tags.items(), special, plain, strict=True)
            if one == [id] and other != [id]
        }


def _characters(pieces: Sequence[str | int]) -> int:
    return sum(len(piece) for piece in pieces if isinstance(piece, str))


def _parted(tokens: Sequence[int]) -> list[list[int]]:
    parts: list[list[int]] = [[]]
    for token in tokens:
        if token == _NO_TOKEN:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts[:-1]


def _words(path: Path) -> _Words:
    vocabulary = read_vocabulary(path)
    digest = hashlib.blake2b(bytes(vocabulary.types), digest_size=8)
    for token in vocabulary.tokens:
        digest.update(len(token).to_bytes(4, "big") + token)
    longest = max(map(len, vocabulary.tokens), default=1)
    return _Words(vocabulary, PartialTokens(vocabulary), longest, digest.hexdigest())


def _is_tag(token: bytes) -> bool:
    return (token.startswith(b"<") and token.endswith(b">")) or (
        token.startswith(b"[") and token.endswith(b"]") and token[1:-1].isupper()
    )


def _facts(
    header: Header,
    vocabulary: Vocabulary,
    control: dict[str, int],
    launch: Launch,
    fingerprint: str,
) -> ModelFacts:
    def text(id: int | None) -> str:
        if id is None or not 0 <= id < len(vocabulary.tokens):
            return ""
        return vocabulary.tokens[id].decode("utf-8", "replace")

    return ModelFacts(
        template=header.chat_template,
        context_length=launch.context,
        parallel=launch.parallel,
        control_tokens=control,
        bos_token=text(vocabulary.bos),
        eos_token=text(vocabulary.eos),
        end_tokens=vocabulary.end,
        fingerprint=fingerprint,
        vocabulary=str(header.path),
        size=len(vocabulary.tokens),
    )


def _stamps(files: Iterable[Path]) -> dict[Path, tuple[int, int] | None]:
    """What tells a file from another that takes its place; ``None`` where there is none."""
    return {file: _stamp(file) for file in files}


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns
