"""Tokens of a reply: as the server tells them, and the best guess where it does not.

Servers differ in what they leave out. A missing total is counted by what has
arrived (a piece of a stream is about a token, a token about four characters);
a missing share of reasoning is the reasoning's share of the characters, which
is the same for a stream and a plain reply.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from causerie.protocol.events import Usage
from causerie.protocol.request import ChatRequest
from causerie.upstreams.wire import UsageBody

_CHARACTERS = 4  # a token, about
_NOTHING = UsageBody()


class Sized(Protocol):
    """A choice: how many characters of reasoning, and in all."""

    @property
    def reasoned(self) -> int: ...
    @property
    def size(self) -> int: ...


class Counts:
    """``told`` is the last that the server said; ``pieces`` counts what brought content."""

    __slots__ = ("_request", "pieces", "told")

    def __init__(self, request: ChatRequest) -> None:
        self._request = request
        self.told: UsageBody | None = None
        self.pieces = 0

    def usage(self, answers: Iterable[Sized]) -> Usage:
        """The tokens so far."""
        told = self.told or _NOTHING
        sizes = [(answer.reasoned, answer.size) for answer in answers]
        reasoned, size = sum(one for one, _ in sizes), sum(one for _, one in sizes)
        completion = told.completion_tokens
        if completion is None:
            completion = self.pieces if self.pieces > 1 else -(-size // _CHARACTERS)
        prompt = told.prompt_tokens
        if prompt is None:
            prompt = self._prompt() if self.pieces else 0
        reasoning = _reasoning(told)
        if reasoning is None:
            reasoning = round(completion * reasoned / size) if size else 0
        return Usage(
            prompt=prompt,
            completion=completion,
            cached=min(_cached(told), prompt),
            reasoning=min(reasoning, completion),
            estimated=bool(completion) and None in (told.completion_tokens, told.prompt_tokens),
        )

    def _prompt(self) -> int:
        size = 0
        for message in self._request.messages:
            size += len(message.text) + len(message.reasoning_content or "")
            size += sum(len(call.arguments) for call in message.tool_calls)
        return -(-size // _CHARACTERS)


def _reasoning(told: UsageBody) -> int | None:
    details = told.completion_tokens_details
    if details is not None and details.reasoning_tokens is not None:
        return details.reasoning_tokens
    return told.reasoning_tokens


def _cached(told: UsageBody) -> int:
    details = told.prompt_tokens_details
    if details is not None and details.cached_tokens is not None:
        return details.cached_tokens
    return told.prompt_cache_hit_tokens or 0
