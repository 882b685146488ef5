"""OpenVINO GenAI as a text engine of ours: its options, the start of its child, and their messages.

Generations are streams of tokens. Where the options say nothing, they are chosen for this machine.
A set of tokens is told as a grammar in the EBNF of xgrammar, the only one that it takes."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from string import ascii_letters, digits
from time import monotonic
from typing import Any, Literal

import msgspec
from msgspec import structs

from causerie.engines import base, grammar_matcher, machine, supervised
from causerie.engines.child_environment import engine_environment
from causerie.engines.openvino.prefill import BLOCK
from causerie.engines.options import OpenVino
from causerie.engines.process import EngineChild, EngineProcess, Pulse, starting
from causerie.engines.sampling import engine_fields
from causerie.engines.weights.errors import WeightsError
from causerie.engines.weights.folder import ModelFolder, read_openvino_folder
from causerie.engines.weights.gguf import Header
from causerie.engines.weights.vocabulary import TokenTable, read_vocabulary

ARCHITECTURES = ("llama", "qwen2", "qwen3")  # those whose GGUF files OpenVINO GenAI reads
_DEFAULT_CONTEXT = 8_192
_SLOTS = 16
_KV_TYPE = "q8_0"  # as large as its own 8-bit type, nearly


class OpenVinoOptions(OpenVino, frozen=True, kw_only=True):
    """Configured options of one OpenVINO process, and its part of the machine."""

    part: machine.MachinePart = machine.WHOLE  # part of the machine that its cores are taken from


@dataclass(frozen=True, slots=True)
class OpenVinoLaunch:
    """The decided options with which an OpenVINO process is started; ``memory`` is in bytes."""

    weights: str
    context: int
    parallel: int
    threads: int | None
    blocks: int  # blocks of the cache that all requests share
    divided: bool  # whether prompts are read in parts; see `prefill.py`
    memory: int
    cpus: tuple[int, ...] | None  # hardware threads that the process stays on; `None`: on any
    environment: tuple[str, ...] = ()
    """Names of further variables of the environment that the process gets."""


def for_machine(
    weights: Path,
    options: OpenVinoOptions,
    model: Header | ModelFolder,
    trained: int,
    memory: int,
    *,
    recurrent: bool = False,
) -> OpenVinoLaunch:
    """Return the options of a launch, with what is unset chosen for ``memory`` bytes.

    ``trained`` is the context that the ``model`` was trained for, 0 where nothing says it.
    Context: that, at most 8,192 tokens. Slots: 16; they share one cache, which holds a whole
    context of each, but takes no more than a quarter of the memory that the weights leave, and
    never less than one context; one context as well where nothing says what a token takes.
    Threads: OpenVINO's choice, but no more than the quotas of the control groups give.
    ``recurrent`` models keep a state for several blocks together, so parts would not be found.
    """
    cpus = options.part.cpus()
    threads = options.threads or (len(cpus) if cpus else None)  # none: OpenVINO's choice
    given = machine.quota(options.part)  # which it does not see
    if not options.threads and given is not None:
        threads = given if given < len(cpus or machine.allowed_cpus()) else threads
    longest = trained or options.context or _DEFAULT_CONTEXT
    context = min(options.context or _DEFAULT_CONTEXT, longest)
    parallel = options.parallel or _SLOTS
    each = machine.kv_bytes_per_token(model, _KV_TYPE)
    room = max(memory - model.file_size, 0) // 4 // each if each else 0
    cached = max(min(context * parallel, room), context)
    return OpenVinoLaunch(
        weights=str(weights),
        context=context,
        parallel=parallel,
        threads=threads,
        blocks=-(-cached // BLOCK) + parallel,  # each request begins a block of its own
        divided=not recurrent,
        memory=machine.model_memory_bytes(model, cached, _KV_TYPE),
        cpus=cpus,
        environment=options.environment,
    )


_ENGINE = "openvino"
_PIECE = 65_536


class _Answer(msgspec.Struct, gc=False):
    id: int = 0
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    end: Literal["stop", "length", "ignored"] | None = None
    refused: str = ""
    encoded: tuple[list[int], ...] = ()
    ready: bool = False
    version: str = ""


_decode = msgspec.json.Decoder(_Answer).decode
_encode = msgspec.json.Encoder().encode


class OpenVinoClient:
    """Client of one child, by its standard input and output; ``version`` is OpenVINO GenAI's.

    ``pulse`` beats whenever something comes. The answers are read by a task of its own,
    which ``close`` ends.
    """

    def __init__(self, process: EngineProcess, pulse: Pulse) -> None:
        self.version = ""
        self._process = process
        self._pulse = pulse
        self._order_ids = count(1)
        self._answer_queues: dict[int, asyncio.Queue[_Answer | None]] = {}
        loop = asyncio.get_running_loop()
        self._has_loaded_future: asyncio.Future[bool] = loop.create_future()
        self._has_ended = False
        self._reader_task = loop.create_task(self._read_answers())

    async def close(self) -> None:
        """Stop reading answers; whoever waits for one gets the error that the engine is gone."""
        self._reader_task.cancel()
        with suppress(asyncio.CancelledError):
            await self._reader_task

    async def loaded(self) -> bool:
        """Wait until the model is loaded, or the child has ended: then return whether it is."""
        return await asyncio.shield(self._has_loaded_future)

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        """Ping the child, and return once it has answered; raise :class:`EngineFailed`."""
        async with self._send_order_for_answers({"ping": path}) as answers:
            await _next_answer(answers)

    async def encode(self, texts: Sequence[str]) -> Sequence[list[int]]:
        async with self._send_order_for_answers({"encode": texts}) as answers:
            return (await _next_answer(answers)).encoded

    @asynccontextmanager
    async def complete(
        self, request: base.TextRequest, spelling: grammar_matcher.Spelling, ebnf: str | None = None
    ) -> AsyncIterator[AsyncGenerator[base.Output, None]]:
        """Yield one completion, under a grammar in EBNF or none; leaving ends it."""
        async with self._send_order_for_answers(_build_generation_order(request, ebnf)) as answers:
            outputs = _outputs_of_answers(answers, request, spelling)
            try:
                yield outputs
            finally:
                await outputs.aclose()

    @asynccontextmanager
    async def _send_order_for_answers(
        self, order: dict[str, Any]
    ) -> AsyncIterator[asyncio.Queue[_Answer | None]]:
        if self._has_ended:
            raise base.EngineFailed("the engine is gone", loading=True)
        number = next(self._order_ids)
        answers: asyncio.Queue[_Answer | None] = asyncio.Queue()
        self._answer_queues[number] = answers
        try:
            await self._process.write(_encode({**order, "id": number}) + b"\n")
            yield answers
        finally:
            if self._answer_queues.pop(number, None) is not None and "generate" in order:
                # Not waited for: the child obeys it before its next step.
                self._process.write_nowait(_encode({"cancel": True, "id": number}) + b"\n")

    async def _read_answers(self) -> None:
        rest = b""  # not line by line: a line may be longer than any limit
        try:
            while piece := await self._process.stdout.read(_PIECE):
                self._pulse.beat = monotonic()
                *lines, rest = (rest + piece).split(b"\n")
                for answer in map(_decode, lines):
                    if answer.ready:
                        self.version = answer.version
                        self._has_loaded_future.set_result(True)
                    elif (answers := self._answer_queues.get(answer.id)) is not None:
                        answers.put_nowait(answer)
        finally:
            self._has_ended = True
            if not self._has_loaded_future.done():
                self._has_loaded_future.set_result(False)
            for answers in self._answer_queues.values():
                answers.put_nowait(None)


# Unset parameters are neutral, not the engine's defaults.
def _build_generation_order(request: base.TextRequest, ebnf: str | None) -> dict[str, Any]:
    fields: dict[str, float] = dict(engine_fields(_ENGINE, request.sampling))
    if fields.get("top_k") == 0:
        del fields["top_k"]  # off is its default, and no number
    if request.sampling.seed is not None:
        fields["rng_seed"] = request.sampling.seed % 2**32
    return {
        "generate": request.prompt,
        "max_tokens": request.max_tokens,
        "ignore_eos": request.ignore_eos,
        "fields": fields,
        "ebnf": ebnf,
    }


async def _next_answer(answers: asyncio.Queue[_Answer | None]) -> _Answer:
    answer = await answers.get()
    if answer is None:
        raise base.EngineFailed("the engine broke off its answer")
    return answer


async def _outputs_of_answers(
    answers: asyncio.Queue[_Answer | None],
    request: base.TextRequest,
    spelling: grammar_matcher.Spelling,
) -> AsyncGenerator[base.Output, None]:
    made = 0
    while True:
        answer = await _next_answer(answers)
        if answer.refused:
            raise base.EngineRefused(f"the engine refused the request: {answer.refused}")
        for id, logprob in zip(answer.ids, answer.logprobs, strict=True):
            made += 1
            if request.logprobs is None:
                yield base.Token(id, spelling(id))
            else:
                yield base.Token(id, spelling(id), spelling.raw(id), min(logprob, 0.0))
        if answer.end == "ignored":
            raise base.EngineFailed("the engine has no room for the request")
        if answer.end is not None:
            yield base.Stopped(answer.end, len(request.prompt), made)
            return


# -P: nothing in the working directory is taken for a module.
_COMMAND = (sys.executable, "-P", "-m", "causerie.engines.openvino.child")
_QUESTIONS = (("/ping", 60.0),)  # between two steps, so longer than one takes anywhere

OpenVinoChild = EngineChild[OpenVinoClient]


async def spawn(
    launch: OpenVinoLaunch, end: tuple[int, ...], load_seconds: float, pulse: Pulse
) -> OpenVinoChild:
    """Start a child and wait until it has loaded; raise :class:`EngineFailed` with the reason.

    ``end`` are the tokens that end a text; ``pulse`` beats while the child answers.
    """
    process = await EngineProcess.start(_COMMAND, engine_environment(launch.environment))
    client = OpenVinoClient(process, pulse)
    async with starting(process, client, load_seconds):
        await process.write(_encode({**asdict(launch), "end": end}) + b"\n")
        if not await client.loaded():
            how = await process.ended()
            if any("No module named 'openvino" in line for line in process.tail):
                raise base.LoadFailed(
                    "OpenVINO GenAI is not installed; in a clone of Causerie: "
                    "pip install '.[openvino]'"
                )
            why = last_words(process.tail) or how
            raise base.EngineFailed(f"the engine could not load {launch.weights}: {why}")
    return EngineChild(process, client, pulse, _QUESTIONS, last_words)


def last_words(tail: Iterable[str]) -> str:
    """Return the first error of the log with what follows it; empty without one."""
    lines = [line.strip() for line in tail]
    for index, line in enumerate(lines):
        if "Error" in line or "what():" in line:
            return " ".join(part for part in lines[index:] if part)[:300]
    return ""


# The engine.

_MOST_EBNF_TEXTS = 100
_PLAIN_IN_EBNF = frozenset(ascii_letters + digits + " ")


def _ebnf_of_texts(texts: Iterable[str], *, ends: bool) -> str:
    options = ['""'] if ends else []
    for text in texts:
        quoted = "".join(one if one in _PLAIN_IN_EBNF else f"\\U{ord(one):08x}" for one in text)
        options.append(f'"{quoted}"')
    return "root ::= " + " | ".join(options)


# Tokenizers number common tokens first. xgrammar admits texts that are in none of the options
# where there are some hundred of them, and takes seconds for all.
def _few_admitted_ids_by_text(vocabulary: TokenTable, ids: Iterable[int]) -> dict[str, int]:
    control = frozenset(vocabulary.control.values())
    texts: dict[str, int] = {}
    for id in ids:
        if len(texts) == _MOST_EBNF_TEXTS:
            break
        raw = vocabulary.tokens[id]
        if raw and id not in control:
            with suppress(UnicodeDecodeError):
                texts[raw.decode()] = id
    return texts


class OpenVinoEngine(supervised.SupervisedEngine[OpenVinoClient]):
    """One GGUF file, or one folder of OpenVINO's own format, run by OpenVINO GenAI on the CPU.

    It follows no grammar of ours: every generation under one goes on here, token by token.
    ``memory`` is what the machine has, in bytes. ``ref`` says where the weights are from, which may
    name the model's family. Making one reads what the weights say of themselves; raises
    :class:`EngineFailed` where that is no model that OpenVINO GenAI runs.
    """

    keeps_grammars = False

    def __init__(
        self,
        model: str,
        weights: Path,
        options: OpenVinoOptions,
        memory: int,
        *,
        ref: str = "",
        load_seconds: float = 600.0,
    ) -> None:
        described, local = _read_gguf_or_openvino_folder(weights, ref)
        trained = described.context_length
        recurrent = isinstance(described, ModelFolder) and described.is_recurrent
        launch = for_machine(weights, options, described, trained, memory, recurrent=recurrent)
        super().__init__(
            model,
            local,
            load_seconds,
            slots=launch.parallel,
            memory_bytes=launch.memory,
            context=launch.context,
        )
        self._launch = launch
        self._tokenize_limiter = supervised.TokenizeLimit()
        self._control_pattern: re.Pattern[str]  # of the vocabulary, once that is read

    async def _engine_name_and_version(self, client: OpenVinoClient) -> str:
        return f"openvino-{client.version}"

    async def tokenize(self, pieces: Sequence[str | int], *, special: bool) -> list[int]:
        """Return the token ids; no beginning-of-text token is added.

        Control tokens are found here: the engine reads each wherever it is written.
        """
        client = self._client()
        vocabulary = await self._vocabulary()
        supervised.ensure_can_fit(vocabulary, pieces, self.context)
        parts = list(
            _split_control(pieces, self._control_pattern, vocabulary.control, special=special)
        )
        texts = [part for part in parts if isinstance(part, str)]
        if not texts:
            return [part for part in parts if isinstance(part, int)]
        size = supervised.characters(texts)
        read = iter(await self._tokenize_limiter.of(size, lambda: client.encode(texts)))
        found: list[int] = []
        for part in parts:
            ids = [part] if isinstance(part, int) else next(read)
            if len(ids) >= self.context:
                raise base.PromptTooLong(len(ids), self.context)
            found += ids
        return found

    async def _load_child(self) -> OpenVinoChild:
        end = (await self._vocabulary()).end
        return await spawn(self._launch, end, self._load_seconds, self._pulse)

    def _read_vocabulary(self) -> TokenTable:
        vocabulary = read_vocabulary(self._local_model.vocabulary)
        texts = sorted(vocabulary.control, key=len, reverse=True)
        self._control_pattern = re.compile("|".join(map(re.escape, texts)) or r"\Z(?!\Z)")
        return vocabulary

    def _run_request(
        self, client: OpenVinoClient, vocabulary: TokenTable, request: base.TextRequest
    ) -> grammar_matcher.Generation:
        return client.complete(request, grammar_matcher.request_spelling(vocabulary, request))

    async def _sample_token(
        self,
        client: OpenVinoClient,
        vocabulary: TokenTable,
        request: base.TextRequest,
        admitted: grammar_matcher.Admitted,
    ) -> base.Token:
        ids = list(admitted.ids())
        spelling = grammar_matcher.request_spelling(vocabulary, request)
        texts = _few_admitted_ids_by_text(vocabulary, ids) if len(ids) > 1 or admitted.ends else {}
        if not texts and not admitted.ends:
            # The only one, or control tokens and parts of characters: no choice, or none to tell.
            certain = None if request.logprobs is None else 0.0
            return base.Token(ids[0], spelling(ids[0]), spelling.raw(ids[0]), certain)
        while True:
            ebnf = _ebnf_of_texts(texts, ends=admitted.ends)
            drawn = await grammar_matcher.first_token(client.complete(request, spelling, ebnf))
            meant = _find_admitted_token(drawn, {*ids, *vocabulary.end}, vocabulary, texts)
            if meant is not None:
                return meant
            # It does not keep to its grammar: to a smaller one, rather than not at all.
            texts = dict(list(texts.items())[: len(texts) // 2])
            if not texts:
                raise base.EngineFailed("the engine did not keep to its grammar")


def _read_gguf_or_openvino_folder(
    weights: Path, ref: str
) -> tuple[Header | ModelFolder, supervised.LocalModel]:
    if weights.is_dir():
        try:
            folder = read_openvino_folder(weights)
        except (WeightsError, OSError) as error:
            raise base.EngineFailed(str(error)) from error
        return folder, supervised.folder_model(folder, supervised.Files(folder.files), ref)
    header, local = supervised.gguf_model(weights, ref)
    if header.architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise base.EngineFailed(
            f"OpenVINO GenAI reads no GGUF file of {header.architecture}, only {known}; "
            'use `engine = "llamacpp"`, or a folder that was converted for OpenVINO'
        )
    return header, local


def _find_admitted_token(
    drawn: base.Token, admitted: set[int], vocabulary: TokenTable, texts: Mapping[str, int]
) -> base.Token | None:
    # The grammar also takes a token that is only the beginning of an admitted one.
    if drawn.id in admitted:
        return drawn
    beginning = vocabulary.tokens[drawn.id].decode("utf-8", "replace")
    meant = next((id for text, id in texts.items() if text.startswith(beginning)), None)
    if meant is None:
        return None
    return structs.replace(drawn, id=meant, raw=vocabulary.tokens[meant] if drawn.raw else b"")


def _split_control(
    pieces: Sequence[str | int], control: re.Pattern[str], ids: Mapping[str, int], *, special: bool
) -> Iterator[str | int]:
    # Without `special`, the text of a control token is cut behind its first character, so that it
    # is none.
    for piece in pieces:
        if isinstance(piece, int):
            yield piece
            continue
        at = begin = 0
        while (found := control.search(piece, at)) is not None:
            if special:
                if begin < found.start():
                    yield piece[begin : found.start()]
                yield ids[found.group()]
                at = begin = found.end()
            else:
                yield piece[begin : found.start() + 1]
                at = begin = found.start() + 1
        if begin < len(piece):
            yield piece[begin:]
