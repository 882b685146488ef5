"""Tokens of a reply: as the server tells them, and the best guess where it does not.

Servers differ in what they leave out, or tell as zero, and one whose client leaves tells nothing. A
missing prompt is the estimate of the request. A missing total is counted by what has arrived (a
piece of a stream is about a token, one of many characters a token for each four), and so is what
arrived after the server last told it; a missing share of reasoning is the reasoning's share of the
characters, which is the same for a stream and a plain reply. If the total is that of prompt,
completion and reasoning, the completion was reported without the reasoning.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from causerie.protocol.estimate import prompt_estimate
from causerie.protocol.events import Usage
from causerie.protocol.request import ChatRequest
from causerie.providers.answer import AnswerStart
from causerie.providers.wire import ProviderUsage

_CHARACTERS = 4  # a token, about
_OF_ONE = 8  # characters a piece: more are more than one token


class Told(Struct, frozen=True, gc=False):
    """The last that the server said of its tokens, after so many pieces and characters."""

    usage: ProviderUsage
    pieces: int
    size: int


NOTHING_TOLD = Told(ProviderUsage(), 0, 0)


def counted(last: Told, pieces: int, answers: Iterable[AnswerStart], request: ChatRequest) -> Usage:
    """The tokens so far; ``pieces`` is how many have brought content."""
    told = last.usage
    reasoned = size = 0
    for answer in answers:
        reasoned += answer.reasoned
        size += answer.size
    prompt, completion, reasoning = told.prompt_tokens, told.completion_tokens, _reasoning(told)
    if reasoning and told.total_tokens == (prompt or 0) + (completion or 0) + reasoning:
        completion = (completion or 0) + reasoning
    unsure = not completion or not prompt or pieces > last.pieces
    if not completion:
        completion = _made(pieces, size)
    elif pieces > last.pieces:
        completion += _made(pieces - last.pieces, size - last.size)
    if not prompt:
        prompt = prompt_estimate(request)
    if reasoning is None:
        reasoning = round(completion * reasoned / size) if reasoned else 0
    return Usage(prompt, completion, min(_cached(told), prompt), min(reasoning, completion), unsure)


def _made(pieces: int, size: int) -> int:
    """About how many tokens so many pieces are, of so many characters together."""
    apart = pieces > 1 and size <= pieces * _OF_ONE
    return pieces if apart else -(-size // _CHARACTERS)


def _reasoning(told: ProviderUsage) -> int | None:
    details = told.completion_tokens_details
    if details is not None and details.reasoning_tokens is not None:
        return details.reasoning_tokens
    return told.reasoning_tokens


def _cached(told: ProviderUsage) -> int:
    details = told.prompt_tokens_details
    if details is not None and details.cached_tokens is not None:
        return details.cached_tokens
    return told.prompt_cache_hit_tokens or told.cached_tokens or 0
