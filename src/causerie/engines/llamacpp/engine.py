"""llama.cpp as a text engine of ours: starting its child, and what its log says when it fails.

The child is a process of ours, :mod:`.child`, or a native build of llama.cpp: its program
``llama-server``, which the configuration names.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import shutil
import sys
import tempfile
from base64 import b64decode
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import structlog
from msgspec import structs

from causerie.engines import base, supervised
from causerie.engines.base import EngineFailed, LoadFailed, Output, Started, TextRequest, Token
from causerie.engines.child_environment import engine_environment
from causerie.engines.grammar_matcher import Admitted, Generation
from causerie.engines.llamacpp.client import (
    FULL_SPEED,
    ChunkedPrefill,
    LlamaCppClient,
    PartialTokens,
)
from causerie.engines.llamacpp.options import (
    Launch,
    LlamaCppOptions,
    Need,
    available_memory,
    for_machine,
    free_now,
    has_gpu,
    with_projector,
)
from causerie.engines.llamacpp.pictures import LETTER, NO_TOKEN, ImagePrompts, parted
from causerie.engines.llamacpp.slots import (
    PromptStore,
    Slots,
    can_store_prompts,
    prompt_files_folder,
)
from causerie.engines.machine import kv_bytes_per_token
from causerie.engines.process import (
    EngineChild,
    EngineProcess,
    Program,
    free_port,
    serve_program,
    start_program_child,
    starting,
)
from causerie.engines.weights.errors import WeightsError
from causerie.engines.weights.gguf import read_header
from causerie.engines.weights.vocabulary import TokenTable, read_vocabulary

log = structlog.get_logger(__name__)

_GIVING_UP = ("GGML_ASSERT", "terminate called", "what():", "Fatal Python error")
# -P: nothing in the working directory is taken for a module.
_COMMAND = (sys.executable, "-P", "-m", "causerie.engines.llamacpp.child")
# By default threads spin for long while they wait for each other. Next to any other program that
# keeps a core busy generation then falls to a few tokens per second, and alone nothing is won.
_SHORT_SPIN = {"GOMP_SPINCOUNT": "1000"}
_VISIBLE_DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES")
_QUESTIONS = (
    ("/health", 10.0),  # its threads answer whatever is computed
    ("/slots", 200.0),  # its loop after every step; longer than one takes anywhere
)

_POOLINGS = (1, 2, 3)  # mean, cls and last, as files number them
_RANKING = 4
_TAG = re.compile(rb"<.{1,38}>|\[(?=[^a-z]*[A-Z])[^a-z]{1,38}\]", re.DOTALL)

LlamaCppChild = EngineChild[LlamaCppClient]


def environment(options: LlamaCppOptions) -> dict[str, str]:
    """Return the environment variables of the child, which show it only its part's devices."""
    devices = options.part.devices
    seen = {} if devices is None else dict.fromkeys(_VISIBLE_DEVICES, devices)
    return {**_SHORT_SPIN, **engine_environment(options.environment), **seen}


def _get_load_error_or_empty(log_lines: Iterable[str]) -> str:
    # The first error of the native log: the later ones only pass it on.
    lines = list(log_lines)
    errors = [message for line in lines if (message := line.partition(" E ")[2].strip())]
    raised = [line for line in lines if "Error" in line]
    chosen = errors[:1] or _filter_abort_lines(lines)[:1] or raised[-1:]
    return chosen[0].strip()[:300] if chosen else ""


def _get_abort_reason_or_empty(log_lines: Iterable[str]) -> str:
    lines = _filter_abort_lines(log_lines)
    return lines[-1].strip()[:300] if lines else ""


def _filter_abort_lines(log_lines: Iterable[str]) -> list[str]:
    return [line for line in log_lines if any(word in line for word in _GIVING_UP)]


_WITHOUT_PROJECTOR = (
    "place its projector (`mmproj-….gguf`, of the same repository) beside its weights, or name it "
    "by `llamacpp.mmproj`, and load the model anew"
)
_ANSWER_SECONDS = 60.0  # a GPU's libraries take seconds to load
_VERSION = re.compile(r"version: (\S+) \((?:build (\d+), commit )?\w+\)")
_DEVICE = re.compile(r"^ +([^\s:]+): .+ MiB", re.MULTILINE)
_NO_GPU = ("BLAS", "ZenDNN")  # devices that compute on the CPU
_UNKNOWN = re.compile(r"error: invalid argument: (\S+)")
_ERROR = re.compile(r"\berror\b.+", re.IGNORECASE)
# Sizes of batches that the program has by itself.
_GPU_BATCH, _PHYSICAL_BATCH = 2048, 512
_TRIED = "causerie was tried with llama.cpp 0.5.0 of October 2026; take a build as new"


@dataclass(frozen=True, slots=True)
class NativeBuild:
    """Facts that a native llama.cpp program reports about itself."""

    program: str  # path
    version: str
    gpu: bool  # whether it has a GPU to compute on

    @property
    def folder(self) -> str:
        """Return the program's folder, also its working directory, from which it loads backends."""
        return str(Path(self.program).resolve().parent)

    def computes_on_gpu(self, launch: Launch) -> bool:
        return self.gpu and launch.options.gpu_layers != 0

    def batches(self, launch: Launch) -> tuple[int, int]:
        """Return the most tokens of one step, and the most of one computation within a step."""
        own = _GPU_BATCH if self.computes_on_gpu(launch) else launch.cpu_batch
        batch = launch.batch or own
        return batch, batch if launch.options.embeddings else min(batch, _PHYSICAL_BATCH)


def missing_program(command: str) -> str | None:
    """Return why the command is no program that can run, with advice; ``None`` if it is one."""
    if shutil.which(command) is not None:
        return None
    advice = "name the program `llama-server` of a build of llama.cpp"
    if "/" not in command:
        return f'"{command}" is not on the search path (PATH); {advice}, or its path'
    path = Path(command)
    if path.is_dir():
        return f'"{command}" is a folder; {advice}'
    if path.exists():
        return f'"{command}" is not executable; {advice}, or allow it: chmod +x {command}'
    return f'"{command}" does not exist; {advice}'


async def examine_program(command: str, options: LlamaCppOptions) -> NativeBuild:
    """Return version and GPU of a llama.cpp program; raise ``LoadFailed`` if it is not one."""
    found = await asyncio.to_thread(shutil.which, command)
    if found is None:
        raise LoadFailed(f"the program {await asyncio.to_thread(missing_program, command)}")
    program = await asyncio.to_thread(Path(found).absolute)
    environ = environment(options)
    said = await _read_program_output(program, "--version", environ)
    version = _VERSION.search(said)
    if version is None:
        raise LoadFailed(
            f"the program {command} does not say its version "
            f"({_last_line(said) or 'it says nothing'}); "
            "name the program `llama-server` of a build of llama.cpp"
        )
    devices_found = _DEVICE.findall(await _read_program_output(program, "--list-devices", environ))
    number, build = version.groups()
    return NativeBuild(
        program=str(program),
        version=f"{number}-b{build}" if build else number,
        gpu=any(not name.startswith(_NO_GPU) for name in devices_found),
    )


def native_arguments(
    build: NativeBuild, launch: Launch, place: int | str, states: str
) -> Sequence[str]:
    """Return the command that serves the weights at a loopback port, or at a socket.

    ``states`` is the folder of states of prompts. The program's own chat template is fixed: it
    would give up at one that it cannot read, and is never asked for a chat.
    """
    batch, physical = build.batches(launch)
    host, port = (place, 1) if isinstance(place, str) else ("127.0.0.1", place)
    options, drafts = launch.options, bool(launch.options.draft)
    quoted = (
        '"' + path.replace('"', '""') + '"' if {",", '"'} & set(path) else path
        for path in options.lora
    )
    chosen: Mapping[str, object] = {
        "--model": launch.weights,
        "--host": host,
        "--port": port,
        "--parallel": launch.parallel,
        "--ctx-size": launch.cache_tokens,
        "--threads": launch.threads,
        "--threads-batch": launch.threads,
        "--batch-size": batch,
        "--ubatch-size": physical,
        "--cache-type-k": launch.kv_type,
        "--cache-type-v": launch.kv_type,
        "--cache-ram": 0,  # slots are chosen here, and the prompts that leave them kept
        "--slot-save-path": states,
        "--threads-http": 2 * launch.parallel + 32,  # one for each open connection
        "--chat-template": "chatml",
        "--fit": "on" if build.computes_on_gpu(launch) else "off",
        "--gpu-layers": options.gpu_layers,
        "--flash-attn": {True: "on", False: "off", None: None}[options.flash_attention],
        "--pooling": options.pooling,
        "--lora": ",".join(quoted) or None,
        "--mmproj": options.mmproj,
        "--model-draft": options.draft or None,
        "--spec-draft-n-max": launch.drafted if drafts else None,
        "--spec-ngram-simple-size-m": None if drafts else launch.drafted or None,
        "--spec-type": "draft-simple" if drafts else "ngram-simple" if launch.drafted else None,
    }
    switches = ["--slots", "--no-webui", "--no-context-shift"]
    if launch.cache_tokens < launch.context * launch.parallel:
        switches.append("--kv-unified")
    if options.embeddings:
        switches.append("--embeddings")
    given = [str(part) for pair in chosen.items() if pair[1] is not None for part in pair]
    return [build.program, *given, *switches, *options.args]


async def _require_stream_fields_by_probe(client: LlamaCppClient, build: NativeBuild) -> None:
    request = TextRequest(prompt=(0,), max_tokens=1, ignore_eos=True)
    async with client.complete(request) as outputs:
        kinds = [type(output) async for output in outputs]
    for kind, field in ((Started, "prompt_progress"), (Token, "tokens")):
        if kind not in kinds:
            raise LoadFailed(
                f"{build.program} ({build.version}) sends no `{field}`: it is too old; {_TRIED}"
            )


async def _read_program_output(program: Path, question: str, environ: Mapping[str, str]) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            question,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environ,
            cwd=(await asyncio.to_thread(program.resolve)).parent,
        )
    except OSError as error:
        raise LoadFailed(f"{program} could not be started: {error.strerror or error}") from error
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        raise LoadFailed(f"{program} {question} did not end within {_ANSWER_SECONDS:g} s") from None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    said = output.decode("utf-8", "replace")
    if process.returncode != 0:
        how = f"exit status {process.returncode}"
        raise LoadFailed(f"{program} {question} failed ({how}): {_last_line(said)}")
    return said


def _last_line(output: str) -> str:
    lines = output.strip().splitlines()
    return lines[-1].strip()[:300] if lines else ""


class LlamaCppEngine(supervised.SupervisedEngine[LlamaCppClient]):
    """One GGUF file, run by llama.cpp.

    ``ref`` says where the weights are from, which may name the model's family. Making one reads the
    file's header; raises :class:`EngineFailed` where it is no model, or does not fit.
    """

    def __init__(
        self,
        model: str,
        weights: Path,
        options: LlamaCppOptions,
        *,
        ref: str = "",
        load_seconds: float = 600.0,
    ) -> None:
        try:
            options = with_projector(options, read_header(weights))
            header, local = supervised.gguf_model(weights, ref, options.alongside)
            launch = for_machine(weights, options, header)
        except (WeightsError, OSError) as error:
            raise EngineFailed(str(error)) from error
        self.vision = options.mmproj is not None
        self.without_vision = "" if self.vision else _WITHOUT_PROJECTOR
        if options.embeddings and options.pooling is None and header.pooling not in _POOLINGS:
            raise EngineFailed(
                f"{model} is a model that ranks, not one that makes embeddings"
                if header.pooling == _RANKING
                else f"the file of {model} does not say how one vector is made of a text; is it an "
                "embedding model? Set `llamacpp.pooling` to `mean`, `cls` or `last`, as its "
                "publisher says"
            )
        super().__init__(
            model,
            local,
            load_seconds,
            slots=launch.parallel,
            memory_bytes=launch.memory,
            context=launch.context,
        )
        self._launch = launch
        if launch.cache_tokens < launch.context * launch.parallel:
            self.cache_tokens = launch.cache_tokens
        self._tokenize_limiter = supervised.TokenizeLimit()
        self._tokens_before_and_after_input: tuple[list[int], list[int]] | None = None
        # A build with llguidance could, and nothing tells which one has it.
        self.keeps_grammars = launch.options.command is None
        self._build_version = version("xllamacpp")
        if options.gpu_layers == 0 or not has_gpu():
            need = Need(header, launch.cache_tokens, launch.kv_type, launch.memory)
            self._refuse_or_warn_if_memory_short(need)
        token_bytes = kv_bytes_per_token(header, launch.kv_type)
        self._prompt_store = PromptStore(launch.prompt_cache_bytes, token_bytes)
        self._partial_token_index: PartialTokens  # of the vocabulary, once that is read

    def _refuse_or_warn_if_memory_short(self, need: Need) -> None:
        model, total = self._model_name, available_memory() // self._launch.options.part.of
        if need.memory > total:
            raise EngineFailed(f"{model} {need.refusal(total)}")
        if need.memory > (free := free_now(total)):
            log.warning(
                "memory is short",
                model=model,
                needed=need.memory,
                free=free,
                advice=need.advice(free),
            )

    async def _engine_name_and_version(self, client: LlamaCppClient) -> str:
        return f"llamacpp-{self._build_version}"

    async def tokenize(self, pieces: Sequence[str | int], *, special: bool) -> list[int]:
        supervised.ensure_can_fit(await self._vocabulary(), pieces, self.context)
        return await self._token_ids(pieces, special=special)

    async def pictured_tokens(self, pieces: Sequence[str | base.Image]) -> list[int]:
        texts = [piece for piece in pieces if isinstance(piece, str)]
        supervised.ensure_can_fit(await self._vocabulary(), texts, self.context)
        prompts = await self._get_image_prompt_builder(self._client())
        size = supervised.characters(texts)
        return await self._tokenize_limiter.of(size, lambda: prompts.tokens(pieces))

    async def _get_image_prompt_builder(self, client: LlamaCppClient) -> ImagePrompts:
        # Each child has a marker of its own.
        if client.images is None:
            control = frozenset((await self.facts()).control_tokens.values())
            client.images = await ImagePrompts.of(client.ask, await self._vocabulary(), control)
        return client.images

    async def _image_prompt_or_none(self, client: LlamaCppClient, request: TextRequest) -> object:
        if request.pictured is None:
            return None
        return await (await self._get_image_prompt_builder(client)).prompt(request)

    async def input_tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text, with the tokens that the model puts around a text."""
        vocabulary = await self._vocabulary()
        for text in texts:
            supervised.ensure_can_fit(vocabulary, [text], self.context)
        if self._tokens_before_and_after_input is None:
            body = {"content": LETTER, "parse_special": False, "add_special": True}
            whole = (await self._client().ask("POST", "/tokenize", body))["tokens"]
            inner = await self._token_ids([LETTER], special=False)
            at = next(n for n in range(len(whole)) if whole[n : n + len(inner)] == inner)
            self._tokens_before_and_after_input = whole[:at], whole[at + len(inner) :]
        before, behind = self._tokens_before_and_after_input
        parts = await self._token_ids(
            [part for text in texts for part in (text, NO_TOKEN)], special=False
        )
        return [[*before, *part, *behind] for part in parted(parts)]

    async def embed(self, inputs: Sequence[Sequence[int]]) -> list[bytes]:
        self._running_request_count += len(inputs)
        try:
            body = {"input": inputs, "encoding_format": "base64"}
            answer = await self._client().ask("POST", "/v1/embeddings", body)
        finally:
            self._running_request_count -= len(inputs)
        self.supervisor.has_answered = True
        found = sorted(answer["data"], key=lambda one: one["index"])
        return [b64decode(one["embedding"]) for one in found]

    async def _token_ids(self, pieces: Sequence[str | int], *, special: bool) -> list[int]:
        body = {"content": pieces, "parse_special": special, "add_special": False}
        answer = await self._tokenize_limiter.of(
            supervised.characters(pieces), lambda: self._client().ask("POST", "/tokenize", body)
        )
        return list(answer["tokens"])

    async def _load_child(self) -> LlamaCppChild:
        options = self._launch.options
        if options.command is None:
            return await self._start_package_child()
        build = await examine_program(options.command, options)
        log.info(
            "native build of llama.cpp",
            model=self._model_name,
            command=build.program,
            version=build.version,
            gpu=build.gpu,
        )
        self._build_version = build.version
        self._facts = None  # which name the version
        return await self._start_native_child(build)

    async def _start_package_child(self) -> LlamaCppChild:
        launch = self._launch
        process = await EngineProcess.start(_COMMAND, environment(launch.options))
        key, socket = secrets.token_urlsafe(32), process.ipc_socket.path
        decided = {**structs.asdict(launch.options), **asdict(launch)}
        task = {"launch": decided, "key": key, "socket": socket}
        ready: dict[str, Any] = {}
        async with starting(process, None, self._load_seconds):
            await process.write(msgspec.json.encode(task) + b"\n")
            async for line in process.stdout:
                ready = json.loads(line) if line.startswith(b"{") else {}
                if "ready" in ready:
                    break
            else:
                await process.ended()  # for all that it has written
                reason = _get_load_error_or_empty(process.tail)
                detail = f": {reason}" if reason else ""
                raise EngineFailed(f"the engine could not load {launch.files}{detail}")
        place = socket or int(ready["address"].rpartition(":")[2])
        return self._make_child_and_client(process, place, key, ready["batch"], ready["gpu_batch"])

    async def _start_native_child(self, build: NativeBuild) -> LlamaCppChild:
        launch = self._launch
        process = await start_program_child(environment(launch.options))
        key, place = secrets.token_urlsafe(32), process.ipc_socket.path or free_port()
        batch, physical = build.batches(launch)
        gpu_batch = physical if build.computes_on_gpu(launch) else None
        child = self._make_child_and_client(process, place, key, batch, gpu_batch)
        # Where prompts are not stored, the program still wants a folder that exists.
        other = str(Path(place).parent) if isinstance(place, str) else tempfile.gettempdir()
        states = prompt_files_folder(os.getpid()) if can_store_prompts() else other
        command = native_arguments(build, launch, place, states)
        # By its environment: arguments can be read by every user of the machine.
        program = Program(command, {"LLAMA_API_KEY": key}, cpus=launch.cpus, folder=build.folder)
        async with starting(process, child.client, self._load_seconds):
            how = await serve_program(process, program, lambda: child.client.ask("GET", "/health"))
            if how is not None:
                tail = list(process.tail)
                unknown = next(
                    (found[1] for line in tail if (found := _UNKNOWN.search(line))), None
                )
                errors = (found[0].strip()[:300] for line in tail if (found := _ERROR.search(line)))
                reason = _get_load_error_or_empty(tail) or next(errors, how)
                if unknown is not None:
                    reason = f"it does not know the argument {unknown}; {_TRIED}"
                said = f"{build.program} ({build.version})"
                raise EngineFailed(f"{said} could not load {launch.files}: {reason}")
            if not launch.options.embeddings:
                await _require_stream_fields_by_probe(child.client, build)
        return child

    def _make_child_and_client(
        self, process: EngineProcess, place: int | str, key: str, batch: int, gpu_batch: int | None
    ) -> LlamaCppChild:
        launch = self._launch
        sizes = batch, launch.context, launch.token_seconds, gpu_batch or FULL_SPEED
        prefill = ChunkedPrefill(*sizes, enabled=launch.cuts_back)
        slots = Slots(launch.parallel, launch.cache_tokens, self._prompt_store)
        client = LlamaCppClient(place, key, slots, prefill, self._partial_token_index, self._pulse)
        return EngineChild(process, client, self._pulse, _QUESTIONS, _get_abort_reason_or_empty)

    async def stop(self) -> None:
        """End the child process, and give back the memory of prompts that left their slots."""
        await super().stop()
        self._prompt_store.close()

    def _read_vocabulary(self) -> TokenTable:
        vocabulary = read_vocabulary(self._local_model.vocabulary)
        self._partial_token_index = PartialTokens(vocabulary)
        return vocabulary

    def _run_request(
        self, client: LlamaCppClient, vocabulary: TokenTable, request: TextRequest
    ) -> Generation:
        if self._launch.cuts_back:
            request = replace(request, shared=0)
        if request.pictured is not None:
            return self._generate_with_images(client, request)
        return client.complete(request)

    @asynccontextmanager
    async def _generate_with_images(
        self, client: LlamaCppClient, request: TextRequest
    ) -> AsyncIterator[AsyncGenerator[Output, None]]:
        prompt = await self._image_prompt_or_none(client, request)
        async with client.complete(request, prompt) as outputs:
            yield outputs

    async def _sample_token(
        self,
        client: LlamaCppClient,
        vocabulary: TokenTable,
        request: TextRequest,
        admitted: Admitted,
    ) -> Token:
        prompt = await self._image_prompt_or_none(client, request)
        if self.keeps_grammars:
            return await client.sample(replace(request, grammar=admitted.grammar()), prompt)
        ids = [*admitted.ids(), *(vocabulary.end if admitted.ends else ())]
        if len(ids) == 1 and request.logprobs is None:
            return Token(ids[0], "")  # no choice
        request = replace(request, ignore_eos=False)
        return await client.sample(request, prompt, ids, len(vocabulary.tokens))

    async def _get_engine_control_ids_by_text(self, vocabulary: TokenTable) -> Mapping[str, int]:
        # The engine promotes words that look like the end of a text to control tokens, which the
        # file does not say; users must not be able to write them.
        known = set(vocabulary.control.values())
        tags = {
            id: token.decode("utf-8", "replace")
            for id, token in enumerate(vocabulary.tokens)
            if id not in known and _TAG.fullmatch(token)
        }
        if not tags:
            return vocabulary.control
        # One question for all: a number that is no token stands between them.
        asked = [part for text in tags.values() for part in (text, NO_TOKEN)]
        special = parted(await self._token_ids(asked, special=True))
        plain = parted(await self._token_ids(asked, special=False))
        undeclared = {
            text: id
            for (id, text), one, other in zip(tags.items(), special, plain, strict=True)
            if one == [id] and other != [id]
        }
        return {**vocabulary.control, **undeclared}
