"""Tokens of a reply: as the server tells them, and the best guess where it does not.

Servers differ in what they leave out, or tell as zero, and one whose client leaves tells nothing. A
missing prompt is the estimate of the request. A missing total is counted by what has arrived (a
piece of a stream is about a token, one of many characters a token for each four), and so is what
arrived after the server last told it; a missing share of reasoning is the reasoning's share of the
characters, which is the same for a stream and a plain reply. If the total is that of prompt,
completion and reasoning, the completion was reported without the reasoning. If more of the prompt
was cached than it has tokens, it was reported without these.

A number that is impossible, by the bytes that came or by the limits of request and model, counts as
not reported.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from causerie.protocol.estimate import prompt_estimate
from causerie.protocol.events import Usage
from causerie.protocol.request import ChatRequest
from causerie.providers.answer import AnswerStart
from causerie.providers.finish import is_cut
from causerie.providers.wire import ProviderUsage

_CHARACTERS = 4  # a token, about
_OF_ONE = 8  # characters a piece: more are more than one token
UNSHOWN = 128
"""Most tokens of a reply that are not visible in it, such as the marks of its parts."""
_MARGIN = 16  # tokens beyond a limit: ends that some servers count in addition
BELIEVED_PROMPT = 131_072
"""Tokens that a server may add to a prompt: its own instructions, results of its own searches."""
_BYTES_PER_ESTIMATE = 4  # at most: a token for four bytes of ASCII, or three of other text
_MOST_OF_CHOICE = 1_048_576  # tokens, where no limit is known


class Told(Struct, frozen=True, gc=False):
    """The last that the server said of its tokens, after so many pieces and characters."""

    usage: ProviderUsage
    pieces: int
    size: int


NOTHING_TOLD = Told(ProviderUsage(), 0, 0)


def counted(
    last: Told, pieces: int, answers: Collection[AnswerStart], request: ChatRequest
) -> Usage:
    """The tokens so far; ``pieces`` is how many have brought content."""
    told = last.usage
    reasoned = size = 0
    for answer in answers:
        reasoned += answer.reasoned
        size += answer.size
    prompt, completion, reasoning = told.prompt_tokens, told.completion_tokens, _reasoning(told)
    prompt = prompt or told.input_tokens
    completion = completion or told.output_tokens
    if reasoning and told.total_tokens == (prompt or 0) + (completion or 0) + reasoning:
        completion = (completion or 0) + reasoning
    cached = _cached(told)
    if prompt and cached > prompt:  # counted apart
        prompt += cached
    impossible = False
    if completion and not _is_possible(completion, reasoning or 0, size, answers, request):
        impossible, completion, reasoning = True, None, None
    if prompt and prompt > BELIEVED_PROMPT and prompt > _most_of_prompt(request):
        impossible, prompt, cached = True, None, 0
    unsure = not completion or not prompt or pieces > last.pieces
    if not completion:
        completion = _made(pieces, size)
    elif pieces > last.pieces:
        completion += _made(pieces - last.pieces, size - last.size)
    if not prompt:
        prompt = prompt_estimate(request)
    if reasoning is None:
        reasoning = round(completion * reasoned / size) if reasoned else 0
    cached, reasoning = min(cached, prompt), min(reasoning, completion)
    return Usage(prompt, completion, cached, reasoning, unsure, impossible=impossible)


def _is_possible(
    completion: int,
    reasoning: int,
    size: int,
    answers: Collection[AnswerStart],
    request: ChatRequest,
) -> bool:
    """Return true if so many tokens may have made what came.

    A token makes a byte or more, but for a few that show nowhere. Reasoning may not be shown, or
    only a summary of it; then only the limits of the request and the model bound the tokens.
    """
    count, bounds = max(request.n, len(answers)), request.bounds
    model = bounds.max_output_tokens or bounds.context_length or _MOST_OF_CHOICE
    most = model if request.max_tokens is None else request.max_tokens
    if completion - reasoning > most * count + _MARGIN or completion > model * count + _MARGIN:
        return False
    if completion <= size + UNSHOWN or reasoning or request.thinking.enabled:
        return True
    if any(each.has_thought for each in answers):
        return True
    if request.max_tokens is not None and any(is_cut(each.finish) for each in answers):
        return True
    return completion <= sum(each.bytes() for each in answers) + UNSHOWN


def _most_of_prompt(request: ChatRequest) -> int:
    """Return how many tokens the prompt may have: one a byte, and what the server adds to it."""
    most = BELIEVED_PROMPT + _BYTES_PER_ESTIMATE * prompt_estimate(request)
    context = request.bounds.context_length
    return most if context is None else min(most, context)


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
