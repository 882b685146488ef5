"""Chat of visitors without an account: which models, how much, and what a request may hold.

Counts are of one day in UTC, and of all replicas where they share a server. Without one they
are of this process, and a restart begins anew. Everything that a visitor sends is written anew
into a request that holds nothing else.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, field

from causerie.access.shared_budgets import HoldRequest, SharedBudgetStore
from causerie.catalog.listing import Listing
from causerie.errors import InvalidRequest, RateLimited, ServiceError, counted
from causerie.hosted.accounts.passwords import network

_MOST_ADDRESSES = 100_000
_SOON = 5  # seconds until a place may be free


class PublicChatOptions(Struct, frozen=True):
    """Limits of the chat without an account, as in the settings; without models there is none."""

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


class PublicChat(Struct):
    """Chat of visitors without an account; replicas count together if they share a store."""

    options: PublicChatOptions
    _clock: Callable[[], datetime]
    _shared_store: SharedBudgetStore | None = None
    _counted_date: date | None = None
    _messages_today_by_network: Counter[str] = field(default_factory=Counter)  # all under ""
    _running_networks: set[str] = set()

    def offers(self, model: Listing) -> bool:
        """Return whether visitors may chat with a model: the options name it, and it is free."""
        free = all(each.tariff.free for each in model.endpoints)
        return model.id in self.options.models and model.twist is None and free

    def request(self, body: bytes, model: str) -> bytes:
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

    @asynccontextmanager
    async def message(self, address: str) -> AsyncIterator[None]:
        """Count a visitor's message unless the block fails; raise :class:`RateLimited`."""
        where, now = network(address), self._clock().astimezone(UTC)
        with self._hold_message_in_this_process(where, now):
            held = await self._place_shared_store_holds(where, now)
            spent = [1, 1, 0, 0]  # as in `_place_shared_store_holds`
            try:
                yield
            except ServiceError:
                spent = [0, 0, 0, 0]
                raise
            finally:
                if held and self._shared_store is not None:
                    await self._shared_store.settle(held, spent, held=True)

    @contextmanager
    def _hold_message_in_this_process(self, network: str, now: datetime) -> Iterator[None]:
        if self._counted_date != now.date():
            self._counted_date, self._messages_today_by_network = now.date(), Counter()
        used = self._messages_today_by_network
        full = network not in used and len(used) > _MOST_ADDRESSES
        total = self.options.total_messages_per_day if full else used[""]
        running = int(network in self._running_networks), len(self._running_networks)
        self._refuse_if_exhausted((used[network], total, *running), now)
        self._running_networks.add(network)
        used.update((network, ""))
        try:
            yield
        except ServiceError:
            used.subtract((network, ""))
            raise
        finally:
            self._running_networks.discard(network)

    async def _place_shared_store_holds(self, network: str, now: datetime) -> Sequence[HoldRequest]:
        # Replicas count together only while the shared server answers.
        if self._shared_store is None:
            return ()
        day = f"visitors:{now.date()}"
        places = (f"{day}:{network}", day, f"visitors:running:{network}", "visitors:running")
        wants = [
            HoldRequest(place, amount, 1, 0)
            for place, amount in zip(places, self._list_daily_and_running_limits(), strict=True)
        ]
        answer = await self._shared_store.hold(wants, read=True)
        if answer is None:  # this process decides alone, which it has
            return ()
        if answer.outcome == "refused":
            self._refuse_if_exhausted([spent + held for spent, held in answer.stood], now)
        return wants

    def _list_daily_and_running_limits(self) -> tuple[int, int, int, int]:
        options = self.options
        return options.messages_per_day, options.total_messages_per_day, 1, options.concurrent

    def _refuse_if_exhausted(self, used_amounts: Sequence[int], now: datetime) -> None:
        amounts = self._list_daily_and_running_limits()
        words = (
            f"Visitors without an account have {counted(amounts[0], 'message')} a day, and none "
            "is left. Sign in to go on, or come back tomorrow.",
            "All messages of visitors for today are used. Sign in, or come back tomorrow.",
            "A reply to you is under way. Wait until it ends, or stop it.",
            "Too many visitors are chatting now. Try again in a few seconds, or sign in.",
        )
        for number, (used, amount) in enumerate(zip(used_amounts, amounts, strict=True)):
            if used >= amount:
                daily = number < 2
                midnight = datetime.combine(now.date() + timedelta(days=1), time(), UTC)
                wait = math.ceil((midnight - now).total_seconds()) if daily else _SOON
                raise RateLimited(
                    words[number],
                    code="requests" if daily else "concurrency",
                    headers={"Retry-After": str(wait)},
                    metadata={"limit": "public_chat", "allowed": amount},
                )
