"""vLLM as a text engine of ours, started here or run by others.

The vocabulary of its model is read here. Of an external server it is checked that it has the
capabilities that the service needs; nothing of it is started or ended here. One that is started
here publishes its KV events at sockets of this user's own. A folder is read once for all engines
that serve it."""

from __future__ import annotations

import asyncio
import json
import random
import re
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import structlog
from tokenizers import Tokenizer

from causerie.engines import process, supervised
from causerie.engines.base import EngineFailed, TextRequest, Token
from causerie.engines.child_environment import engine_environment
from causerie.engines.grammar_matcher import Admitted, Generation, first_token, request_spelling
from causerie.engines.options import VllmOptions
from causerie.engines.pool.kv_events import KvEndpoint
from causerie.engines.vllm.client import (
    HEALTH,
    MOST_ALTERNATIVES,
    SERVED_NAME,
    SLOTS,
    Elsewhere,
    VllmClient,
    VllmRefused,
    vllm_arguments,
)
from causerie.engines.weights.errors import NotModelFolder, WeightsError
from causerie.engines.weights.folder import TOKENIZER, read_folder, read_object
from causerie.engines.weights.vocabulary import TokenTable, read_vocabulary
from causerie.http.client_connection import TransportFailed
from causerie.protocol.parameters import SamplingParams

# The tokenizer of the model folder: text to ids, of which no user can forge one.

_NOTHING = ""  # a token that no text becomes


class FolderTokenizer:
    """The tokenizer of the ``tokenizer.json`` at ``file``; reading the largest takes seconds.

    May be used by threads. Raises :class:`NotModelFolder` for a file that is
    none, or whose ids are not those that the library gives its tokens.
    """

    def __init__(self, file: Path) -> None:
        try:
            content = _without_id_changes(read_object(file))
            self._tokenizer_with_added_tokens = _build_tokenizer(content)
            # The library numbers added tokens itself: by the model's vocabulary, or behind it.
            for token in content.get("added_tokens") or ():
                text, id = token["content"], token["id"]
                if self._tokenizer_with_added_tokens.token_to_id(text) != id:
                    raise ValueError(
                        f"{text!r} has the id {id} there, and another by its vocabulary"
                    )
            model = content["model"]
            # The library fails at a text with a character for which the vocabulary has nothing.
            lost = model.get("unk_id") is None and not model.get("byte_fallback")
            if lost and model.get("type") == "Unigram":
                raise ValueError("it has nothing for characters that it does not know")
            self._plain_text_tokenizer = _build_tokenizer(
                _without_added_tokens(content, self._tokenizer_with_added_tokens)
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise NotModelFolder(
                file.parent, f"{file.name} is no tokenizer that the library takes ({error})"
            ) from None

    def ids(self, pieces: Sequence[str | int], *, special: bool) -> list[int]:
        """Return the token ids of the pieces in order, each text read by itself; ids pass through.

        With ``special`` the text of an added token becomes that token; without
        it every character is plain text. No beginning-of-text token is added.
        Blocks the thread, not the others, about a millisecond for a thousand tokens.
        Raises :class:`ValueError` for a text that the library fails at.
        """
        tokenizer = self._tokenizer_with_added_tokens if special else self._plain_text_tokenizer
        found: list[int] = []
        for piece in pieces:
            if isinstance(piece, int):
                found.append(piece)
                continue
            # The library takes no half of a surrogate pair.
            text = piece.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            # Batches alone let other threads of ours run meanwhile, and twice as fast they are; of
            # one text each, so that the library does not take all cores for them.
            try:
                (read,) = tokenizer.encode_batch_fast([text], add_special_tokens=False)
            except BaseException:  # noqa: BLE001 - its panics are no narrower, and may quote it
                raise ValueError("the tokenizer fails at a text") from None
            found += read.ids
        return found


def _build_tokenizer(content: dict[str, Any]) -> Tokenizer:
    try:
        return Tokenizer.from_str(json.dumps(content))
    except BaseException as error:  # noqa: BLE001 - the library's panics are no narrower
        raise ValueError(error) from None


def _without_id_changes(content: dict[str, object]) -> dict[str, Any]:
    # Truncation, padding and dropout change ids; post-processors are never used. An added token
    # with letters must match as written, not in a form that a normalizer produces.
    model = content.get("model")
    if isinstance(model, dict) and "dropout" in model:
        content = {**content, "model": {**model, "dropout": None}}
    every: Any = content.get("added_tokens") or ()
    added = [one | {"normalized": False} if _is_not_blank(one["content"]) else one for one in every]
    unused = {"truncation": None, "padding": None, "post_processor": None}
    return {**content, "added_tokens": added, **unused}


def _is_not_blank(token: str) -> bool:
    # Blanks alone cannot forge anything.
    return bool(token.strip(" \t\r\n▁"))


def _without_added_tokens(content: dict[str, Any], tokenizer: Tokenizer) -> dict[str, Any]:
    # Added tokens are removed from the model's own vocabulary too, which may have them as whole
    # pieces. Runs of blanks stay.
    added = tokenizer.get_added_tokens_decoder()
    gone = {id for id, token in added.items() if _is_not_blank(token.content)}
    model = dict(content["model"])
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        texts = {text for text, id in vocabulary.items() if id in gone}
        model["vocab"] = {text: id for text, id in vocabulary.items() if text not in texts}
        if (unknown := model.get("unk_token")) in texts:
            model |= {"unk_token": _NOTHING}
            model["vocab"][_NOTHING] = vocabulary[unknown]
        if "merges" in model:
            prefix = len(model.get("continuing_subword_prefix") or "")
            pairs = (one.split(" ") if isinstance(one, str) else one for one in model["merges"])
            model["merges"] = [
                [left, right]
                for left, right in pairs
                if texts.isdisjoint((left, right, left + right[prefix:]))
            ]
    else:
        model["vocab"] = [
            [_NOTHING if id in gone else text, score] for id, (text, score) in enumerate(vocabulary)
        ]
    return {**content, "added_tokens": [], "model": model}


class ServedFolder:
    """The folder at ``path``; raises :class:`EngineFailed` where it holds no model."""

    def __init__(self, path: Path, *, weights: bool) -> None:
        try:
            self.facts = read_folder(path, weights=weights)
        except (WeightsError, OSError) as error:
            raise EngineFailed(str(error)) from error
        self.files = supervised.Files(self.facts.files)
        self.tokenizer_file = path / TOKENIZER
        self._tokenize_limit = supervised.TokenizeLimit()
        self._reading_lock = threading.Lock()
        self._tokenizer_and_table: tuple[FolderTokenizer, TokenTable] | None = None

    def words(self) -> tuple[FolderTokenizer, TokenTable]:
        """Return the tokenizer and the vocabulary of the folder, read at the first call. Blocks.

        Raises :class:`WeightsError` or :class:`OSError`.
        """
        with self._reading_lock:
            if self._tokenizer_and_table is None:
                tokenizer = FolderTokenizer(self.tokenizer_file)
                self._tokenizer_and_table = tokenizer, read_vocabulary(self.tokenizer_file)
            return self._tokenizer_and_table

    async def tokenize(
        self, pieces: Sequence[str | int], *, special: bool, context: int
    ) -> list[int]:
        """Return the token ids of the pieces; no beginning-of-text token is added.

        Raises :class:`PromptTooLong` where they cannot fit: reading the text takes its time.
        """
        known = self._tokenizer_and_table
        if known is None:
            known = await asyncio.to_thread(self.words)
        tokenizer, vocabulary = known
        supervised.ensure_can_fit(vocabulary, pieces, context)
        read = partial(asyncio.to_thread, tokenizer.ids, pieces, special=special)
        return await self._tokenize_limit.of(supervised.characters(pieces), read)


# A vLLM that is started here.

EVENTS_OPTION = "--kv-events-config"


class KvSockets:
    """The sockets at which one replica publishes its KV events, through all of its restarts.

    They are Unix sockets because events contain the tokens of prompts, and a port is open to every
    user of the machine.
    """

    def __init__(self) -> None:
        self._events_ipc_socket, self._replay_ipc_socket = process.IpcSocket(), process.IpcSocket()
        events, replay = self._events_ipc_socket.path, self._replay_ipc_socket.path
        self.endpoint: KvEndpoint | None = None
        """``None`` where there are no such sockets."""
        if events is not None and replay is not None:
            self.endpoint = KvEndpoint(f"ipc://{events}", f"ipc://{replay}")

    def close(self) -> None:
        """Remove the sockets; may be called again."""
        self._events_ipc_socket.close()
        self._replay_ipc_socket.close()


def events_arguments(endpoint: KvEndpoint) -> tuple[str, str]:
    config = {"endpoint": endpoint.events, "replay_endpoint": endpoint.replay}
    return EVENTS_OPTION, json.dumps(config | {"enable_kv_cache_events": True, "publisher": "zmq"})


_FAREWELL_SECONDS = 5.0  # for shared memory and sockets of its workers
# Answered alongside what is computed, and not when that has died.
_CHILD_QUESTIONS = ((HEALTH, 10.0),)
# Weights lie here and tokens are nobody's business: it is to speak with no hub and to tell nobody
# how it is used. What is set in the environment stays.
_QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
_ERROR = re.compile(r"\b\w*(?:Error|Exception): .+")
_HARMLESS = re.compile(r"\b(?:DEBUG|INFO|WARNING) \d\d-\d\d ")  # an error there is only an example
# These say that something else has failed.
_PASSED_ON = ("See root cause above", "Engine core initialization failed", "RemoteError")

VllmChild = process.EngineChild[VllmClient]


async def spawn(
    model: Path, options: VllmOptions, load_seconds: float, pulse: process.Pulse
) -> VllmChild:
    """Start vLLM and wait until it serves; raise :class:`EngineFailed` with the reason."""
    child = await process.start_program_child({**_QUIET, **engine_environment(options.environment)})
    key = secrets.token_urlsafe(32)
    place = child.ipc_socket.path or process.free_port()
    client = VllmClient(*process.child_address(place), key)
    environment = {"VLLM_API_KEY": key}
    if options.devices:
        (environment["CUDA_VISIBLE_DEVICES"],) = options.devices
    program = process.Program(vllm_arguments(model, options, place), environment, _FAREWELL_SECONDS)
    async with process.starting(child, client, load_seconds):
        how = await process.serve_program(child, program, lambda: client.ask("GET", HEALTH))
        if how is not None:
            why = last_words(child.tail) or how
            raise EngineFailed(f"vLLM could not load {model}: {why}")
    return process.EngineChild(child, client, pulse, _CHILD_QUESTIONS, last_words)


def last_words(tail: Iterable[str]) -> str:
    """Return the first error of the log that is no consequence of another; empty without one."""
    logged = [line for line in tail if not _HARMLESS.search(line)]
    said = [found.group() for line in logged if (found := _ERROR.search(line))]
    causes = [line for line in said if not any(word in line for word in _PASSED_ON)]
    return next(iter(causes or said), "").strip()[:300]


log = structlog.get_logger(__name__)

_FIRST_DELAY = 0.25
_LAST_DELAY = 5.0  # whoever waits for it wants to know soon, and the question costs nothing
_ANSWER_SECONDS = 10.0
_SERVER_QUESTIONS = ((HEALTH, 5.0),)


async def reached(where: Elsewhere, seconds: float, pulse: process.Pulse) -> VllmChild:
    """Wait up to ``seconds`` for an external server, and return it; raise :class:`EngineFailed`.

    ``pulse`` beats while it answers.
    """
    client = VllmClient(where.address, where.reach, where.key)
    try:
        await _wait_healthy(client, monotonic() + seconds)
    except BaseException:
        await client.close()
        raise
    return process.EngineChild(None, client, pulse, _SERVER_QUESTIONS, last_words)


async def _wait_healthy(client: VllmClient, deadline: float) -> None:
    delay = _FIRST_DELAY
    while True:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await client.ask("GET", HEALTH)
                return
        except TimeoutError:
            failure = EngineFailed(f"the server did not answer within {_ANSWER_SECONDS:g} s")
        except EngineFailed as error:
            failure = error
        why = failure.__cause__ or failure
        # Waiting does not help against a wrong certificate, or if another service answers at the
        # address.
        wrong_service = isinstance(failure, VllmRefused) and failure.status < 500
        wrong_certificate = isinstance(why, TransportFailed) and why.kind == "tls"
        if wrong_service or wrong_certificate or monotonic() + delay > deadline:
            # Not as one that is loading: who has waited so long is to hear why it was for nothing.
            raise EngineFailed(f"there is no vLLM at the address: {why}") from failure
        if delay == _FIRST_DELAY:
            log.warning("server is waited for", why=str(why))
        await asyncio.sleep(delay * random.uniform(0.8, 1.2))
        delay = min(delay * 2, _LAST_DELAY)


# The engine.

# Vocabularies that differ read it differently.
VOCABULARY_SAMPLE = "Größe 40, déjà vu: 12345 ½ Ω 日本"

Generate = Callable[[TextRequest], Generation]

_CHECK_SECONDS = 120.0  # a server that is busy answers in its turn
_UNKNOWN_PATH = frozenset((404, 405))
_NO_ENTRY = frozenset((401, 403))
# One character, which nothing suggests. Other backends than guidance, also those that vLLM
# chooses itself (`auto`), take it for 40 of another one or for nothing.
_GRAMMAR, _OBEYED = r"start: /\x{40}/", "@"
_GUIDANCE = """start it with --structured-outputs-config '{"backend": "guidance"}'"""
_LOGPROBS = f"start it with --max-logprobs {MOST_ALTERNATIVES}"


class _Card(msgspec.Struct):
    id: str
    root: str | None = None
    parent: str | None = None
    max_model_len: int | None = None


class _Cards(msgspec.Struct):
    data: tuple[_Card, ...]


# The name of the model that is wanted, or of the only one, and the most tokens of a request.
async def _name_and_context(client: VllmClient, wanted_name: str | None) -> tuple[str, int]:
    try:
        async with _limit_check_time():
            cards = msgspec.convert(await client.ask("GET", "/v1/models"), _Cards).data
    except msgspec.ValidationError as error:
        raise EngineFailed(f"the server's list of models cannot be read: {error}") from error
    except VllmRefused as refusal:
        if refusal.status in _NO_ENTRY:
            why = "`key` must lead to the key that it was started with (--api-key, VLLM_API_KEY)"
            raise EngineFailed(f"the server refuses the key ({refusal.status}); {why}") from refusal
        raise
    card = _choose_model_card(cards, wanted_name)
    longest = card.max_model_len or max(each.max_model_len or 0 for each in cards)
    if not longest:
        raise EngineFailed("the server does not say how long a text may be; it is no vLLM")
    return card.id, longest


def _choose_model_card(cards: Sequence[_Card], wanted: str | None) -> _Card:
    if wanted is not None:
        fitting = [card for card in cards if card.id == wanted]
    else:
        fitting = [card for card in cards if card.parent is None]
    if len({card.root or card.id for card in fitting}) == 1:
        return fitting[0]
    listed = ", ".join(card.id for card in cards) or "none"
    lack = f"has no model {wanted!r}" if wanted else "has several models, or none"
    raise EngineFailed(f"the server {lack}; set `served_name` to one that it lists: {listed}")


# `ids` is how the sample is read here; `generate` begins a generation there.
async def _ensure_capable(client: VllmClient, ids: Sequence[int], generate: Generate) -> None:
    one_token = TextRequest(ids, 1, SamplingParams(temperature=0.0))
    async with _limit_check_time():
        await _ensure_same_vocabulary(client, ids)
        lack = f"takes no grammars of llguidance; {_GUIDANCE}"
        tokens = await _generate_or_fail(replace(one_token, grammar=_GRAMMAR), generate, lack)
        if not tokens:
            raise EngineFailed(
                "the server gives no token ids (`return_token_ids`); it takes vLLM 0.10.2 or newer"
            )
        if tokens[0].text != _OBEYED:
            raise EngineFailed(f"the server does not keep to grammars of llguidance; {_GUIDANCE}")
        lack = f"gives no {MOST_ALTERNATIVES} alternatives with log-probabilities; {_LOGPROBS}"
        request = replace(one_token, logprobs=MOST_ALTERNATIVES)
        tokens = await _generate_or_fail(request, generate, lack)
        if not tokens or len(tokens[0].top) < MOST_ALTERNATIVES:
            raise EngineFailed(f"the server {lack}")


@asynccontextmanager
async def _limit_check_time() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            yield
    except TimeoutError:
        raise EngineFailed(f"the server has not answered within {_CHECK_SECONDS:g} s") from None


async def _ensure_same_vocabulary(client: VllmClient, ids: Sequence[int]) -> None:
    body = {"model": client.model, "prompt": VOCABULARY_SAMPLE, "add_special_tokens": False}
    try:
        read = await client.ask("POST", "/tokenize", body)
    except VllmRefused as refusal:
        if refusal.status in _UNKNOWN_PATH:  # whoever stands before it may let through /v1 only
            return
        raise
    if not isinstance(read, dict) or read.get("tokens") != list(ids):
        raise EngineFailed(
            "the server's vocabulary is not the one of the model's folder; "
            "`ref` must name the model that it serves"
        )


async def _generate_or_fail(request: TextRequest, generate: Generate, lack: str) -> Sequence[Token]:
    try:
        async with generate(request) as outputs:
            return [output async for output in outputs if isinstance(output, Token)]
    except VllmRefused as refusal:
        if refusal.loading:
            raise
        raise EngineFailed(f"the server {lack} ({refusal})") from refusal


class VllmEngine(supervised.SupervisedEngine[VllmClient]):
    """One model folder, served by a vLLM that is started here, or by one that others run.

    For the latter the folder needs no weights. Text becomes tokens and tokens become
    text here, so that nobody's text is read as a control token. ``ref`` says where
    the weights are from, which may name the model's family.
    """

    def __init__(
        self,
        model: str,
        folder: ServedFolder,
        options: VllmOptions | Elsewhere,
        *,
        ref: str = "",
        load_seconds: float = 600.0,
    ) -> None:
        self._served_folder = folder
        super().__init__(
            model,
            supervised.folder_model(folder.facts, folder.files, ref),
            load_seconds,
            slots=options.parallel or SLOTS,
            memory_bytes=folder.facts.file_size,  # vLLM's other memory is on the devices
            context=options.context or folder.facts.context_length,
        )
        self._server_options = options
        self._folder_tokenizer: FolderTokenizer  # read with the vocabulary

    # Its API of token ids takes no images beside them; its chat API does, and is a provider's.
    without_vision = (
        "vLLM takes images in chats alone, so name its server under `[[providers]]`, with "
        '`dialect = "vllm"`'
    )

    async def _engine_name_and_version(self, client: VllmClient) -> str:
        return f"vllm-{(await client.ask('GET', '/version'))['version']}"

    async def tokenize(self, pieces: Sequence[str | int], *, special: bool) -> list[int]:
        self._client()
        return await self._served_folder.tokenize(pieces, special=special, context=self.context)

    def _get_blocking_tokenize_function(self) -> Callable[[str], list[int]]:
        return lambda text: self._folder_tokenizer.ids([text], special=False)

    async def _load_child(self) -> VllmChild:
        options = self._server_options
        if isinstance(options, VllmOptions):
            path = self._served_folder.facts.path
            child = await spawn(path, options, self._load_seconds, self._pulse)
        else:
            child = await reached(options, self._load_seconds, self._pulse)
        try:
            if isinstance(options, VllmOptions):
                _, longest = await _name_and_context(child.client, SERVED_NAME)
            else:
                child.client.model, longest = await _name_and_context(child.client, options.name)
                ids = self._folder_tokenizer.ids([VOCABULARY_SAMPLE], special=False)
                generate = partial(self._run_request, child.client, await self._vocabulary())
                await _ensure_capable(child.client, ids, generate)
        except BaseException:
            await child.stop()
            raise
        self.context = min(longest, options.context or longest)
        self._facts = None  # another one may be of another version, or have another context
        return child

    def _read_vocabulary(self) -> TokenTable:
        self._folder_tokenizer, vocabulary = self._served_folder.words()
        return vocabulary

    def _run_request(
        self, client: VllmClient, vocabulary: TokenTable, request: TextRequest
    ) -> Generation:
        spelling = request_spelling(vocabulary, request)
        return client.complete(request, vocabulary.end, spelling, self._pulse)

    async def _sample_token(
        self, client: VllmClient, vocabulary: TokenTable, request: TextRequest, admitted: Admitted
    ) -> Token:
        one_of_them = replace(request, grammar=admitted.grammar())
        return await first_token(self._run_request(client, vocabulary, one_of_them))
