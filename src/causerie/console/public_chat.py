"""Chat of visitors without an account: which models, how much, and what a request may hold.

Counts are of this process and of one day in UTC; a restart begins anew. Everything that a visitor
sends is written anew into a request that holds nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from causerie.accounts.throttle import network
from causerie.catalog.listing import Listing
from causerie.console.market.row import price
from causerie.errors import InvalidRequest, RateLimited, ServiceError, counted

_MOST_ADDRESSES = 100_000
_SOON = 5  # seconds until a place may be free


@dataclass(frozen=True, slots=True)
class PublicChatOptions:
    """Bounds as in the settings; without models there is no such chat."""

    models: frozenset[str] = frozenset()
    messages_per_day: int = 20
    total_messages_per_day: int = 1000
    concurrent: int = 4
    max_characters: int = 8000
    max_tokens: int = 512


class _Message(Struct, frozen=True, forbid_unknown_fields=True):
    role: Literal["user", "assistant"]
    content: str


class _Conversation(Struct, frozen=True, forbid_unknown_fields=True):
    messages: Annotated[list[_Message], Meta(min_length=1, max_length=100)]


class PublicChat:
    """The chat of one service. ``clock`` tells what time it is."""

    def __init__(self, options: PublicChatOptions, clock: Callable[[], datetime]) -> None:
        self.options = options
        self._clock = clock
        self._day: date | None = None
        self._used: dict[str, int] = {}
        self._total = 0
        self._running: set[str] = set()

    def offers(self, model: Listing) -> bool:
        """Return true if visitors may chat with a model: it is named, and free everywhere."""
        free = all(price(each.tariff).free for each in model.endpoints)
        return model.id in self.options.models and model.twist is None and free

    def request(self, body: bytes, model: str) -> bytes:
        """Return the request of a visitor's messages; raise :class:`InvalidRequest`."""
        try:
            messages = msgspec.json.decode(body, type=_Conversation).messages
        except msgspec.MsgspecError as failure:
            words = f"Messages have a `role` and a text as `content`: {failure}."
            raise InvalidRequest(words, param="messages") from failure
        length = sum(len(each.content) for each in messages)
        if length > self.options.max_characters:
            raise InvalidRequest(
                f"The conversation has {counted(length, 'character')}; without an account it has "
                f"at most {self.options.max_characters:,}. Begin a new one, or sign in.",
                code="conversation_too_long",
                param="messages",
            )
        if messages[-1].role != "user" or not messages[-1].content.strip():
            raise InvalidRequest("The last message is yours, and has a text.", param="messages")
        return msgspec.json.encode(
            {
                "model": model,
                "messages": messages,
                "max_tokens": self.options.max_tokens,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )

    @contextmanager
    def message(self, address: str) -> Iterator[None]:
        """Count a message from an address, unless the block raises :class:`ServiceError`.

        Raises :class:`RateLimited` if the address, or all together, have had theirs.
        """
        where, now = network(address), self._clock().astimezone(UTC)
        if self._day != now.date():
            self._day, self._used, self._total = now.date(), {}, 0
        self._check(where, now)
        day = self._day
        self._running.add(where)
        self._count(where, 1)
        try:
            yield
        except ServiceError:
            if self._day == day:
                self._count(where, -1)
            raise
        finally:
            self._running.discard(where)

    def _count(self, where: str, number: int) -> None:
        self._used[where] = self._used.get(where, 0) + number
        self._total += number

    def _check(self, where: str, now: datetime) -> None:
        options, used = self.options, self._used.get(where, 0)
        if used >= options.messages_per_day:
            words = (
                f"Visitors without an account have {counted(options.messages_per_day, 'message')} "
                "a day, and none is left. Sign in to go on, or come back tomorrow."
            )
            raise _refused(words, _until_tomorrow(now), {"allowed": options.messages_per_day})
        full = where not in self._used and len(self._used) >= _MOST_ADDRESSES
        if full or self._total >= options.total_messages_per_day:
            words = "All messages of visitors for today are used. Sign in, or come back tomorrow."
            raise _refused(words, _until_tomorrow(now), {"allowed": options.total_messages_per_day})
        if where in self._running:
            words = "A reply to you is under way. Wait until it ends, or stop it."
            raise _refused(words, _SOON, {"allowed": 1}, "concurrency")
        if len(self._running) >= options.concurrent:
            words = "Too many visitors are chatting now. Try again in a few seconds, or sign in."
            raise _refused(words, _SOON, {"allowed": options.concurrent}, "concurrency")


def _refused(
    words: str, wait: int, metadata: Mapping[str, object], code: str = "requests"
) -> RateLimited:
    headers = {"Retry-After": str(wait)}
    told = {"limit": "public_chat", **metadata}
    return RateLimited(words, code=code, headers=headers, metadata=told)


def _until_tomorrow(now: datetime) -> int:
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    return math.ceil((midnight - now).total_seconds())
