"""Check that an external vLLM server has the capabilities that the service needs.

Our own server is always started with them. An error names what is missing
and the option that the server must be started with.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec

from causerie.engines.base import EngineFailed, TextRequest, Token
from causerie.engines.grammar_matcher import Run
from causerie.engines.vllm.client import VllmClient, VllmRefused
from causerie.engines.vllm.options import MOST_ALTERNATIVES
from causerie.protocol.parameters import SamplingParams

SAMPLE = "Größe 40, déjà vu: 12345 ½ Ω 日本"  # vocabularies that differ read it differently

_SECONDS = 120.0  # a server that is busy answers in its turn
_UNKNOWN_PATH = frozenset((404, 405))
_NO_ENTRY = frozenset((401, 403))
# One character, which nothing suggests. Other backends than guidance, also those that vLLM
# chooses itself (`auto`), take it for 40 of another one or for nothing.
_GRAMMAR, _OBEYED = r"start: /\x{40}/", "@"
_GUIDANCE = """start it with --structured-outputs-config '{"backend": "guidance"}'"""
_LOGPROBS = f"start it with --max-logprobs {MOST_ALTERNATIVES}"


class _Card(msgspec.Struct):
    """A model in the server's list; adapters have a ``parent``, names of one model one ``root``."""

    id: str
    root: str | None = None
    parent: str | None = None
    max_model_len: int | None = None


class _Cards(msgspec.Struct):
    data: tuple[_Card, ...]


async def served(client: VllmClient, wanted: str | None) -> tuple[str, int]:
    """Name of the ``wanted`` model, or of the only one, and the most tokens of a request.

    Raises :class:`EngineFailed`.
    """
    try:
        async with _in_time():
            cards = msgspec.convert(await client.ask("GET", "/v1/models"), _Cards).data
    except msgspec.ValidationError as error:
        raise EngineFailed(f"the server's list of models cannot be read: {error}") from error
    except VllmRefused as refusal:
        if refusal.status in _NO_ENTRY:
            why = "`key` must lead to the key that it was started with (--api-key, VLLM_API_KEY)"
            raise EngineFailed(f"the server refuses the key ({refusal.status}); {why}") from refusal
        raise
    card = _chosen(cards, wanted)
    longest = card.max_model_len or max(each.max_model_len or 0 for each in cards)
    if not longest:
        raise EngineFailed("the server does not say how long a text may be; it is no vLLM")
    return card.id, longest


def _chosen(cards: Sequence[_Card], wanted: str | None) -> _Card:
    if wanted is not None:
        fitting = [card for card in cards if card.id == wanted]
    else:
        fitting = [card for card in cards if card.parent is None]
    if len({card.root or card.id for card in fitting}) == 1:
        return fitting[0]
    listed = ", ".join(card.id for card in cards) or "none"
    lack = f"has no model {wanted!r}" if wanted else "has several models, or none"
    raise EngineFailed(f"the server {lack}; set `served_name` to one that it lists: {listed}")


async def ensure_able(client: VllmClient, ids: Sequence[int], run: Run) -> None:
    """Raise :class:`EngineFailed` if the server lacks something.

    ``ids`` is how we read :data:`SAMPLE`; ``run`` is a generation there.
    """
    one_token = TextRequest(ids, 1, SamplingParams(temperature=0.0))
    async with _in_time():
        await _ensure_same_words(client, ids)
        await _ensure_grammars(one_token, run)
        await _ensure_logprobs(one_token, run)


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(_SECONDS):
            yield
    except TimeoutError:
        raise EngineFailed(f"the server has not answered within {_SECONDS:g} s") from None


async def _ensure_same_words(client: VllmClient, ids: Sequence[int]) -> None:
    body = {"model": client.model, "prompt": SAMPLE, "add_special_tokens": False}
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


async def _ensure_grammars(request: TextRequest, run: Run) -> None:
    tokens = await _drawn(
        replace(request, grammar=_GRAMMAR), run, f"takes no grammars of llguidance; {_GUIDANCE}"
    )
    if not tokens:
        raise EngineFailed(
            "the server gives no token ids (`return_token_ids`); it takes vLLM 0.10.2 or newer"
        )
    if tokens[0].text != _OBEYED:
        raise EngineFailed(f"the server does not keep to grammars of llguidance; {_GUIDANCE}")


async def _ensure_logprobs(request: TextRequest, run: Run) -> None:
    lack = f"gives no {MOST_ALTERNATIVES} alternatives with log-probabilities; {_LOGPROBS}"
    tokens = await _drawn(replace(request, logprobs=MOST_ALTERNATIVES), run, lack)
    if not tokens or len(tokens[0].top) < MOST_ALTERNATIVES:
        raise EngineFailed(f"the server {lack}")


async def _drawn(request: TextRequest, run: Run, lack: str) -> Sequence[Token]:
    """Return the tokens that come; a refusal is told as what the server lacks."""
    try:
        async with run(request) as outputs:
            return [output async for output in outputs if isinstance(output, Token)]
    except VllmRefused as refusal:
        if refusal.loading:
            raise
        raise EngineFailed(f"the server {lack} ({refusal})") from refusal
