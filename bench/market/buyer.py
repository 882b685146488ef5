"""Requests to the market as clients see them, and the best that could have been had for each."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from market.seller import ABILITIES, Seller

MODEL = "market/model"
_TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
_ASKING: dict[str, object] = {
    "tools": [_TOOL],
    "response_format": {"type": "json_object"},
    "seed": 7,
}


@dataclass(frozen=True, slots=True)
class Purchase:
    """One request: when it was made (seconds of the market), and what came of it.

    ``failure`` says what went wrong, if anything did; ``cost`` is in dollars,
    ``best_cost`` and ``best_first`` are those of the best choice in hindsight,
    ``None`` where nobody could have answered.
    """

    at: float
    failure: str
    seller: str
    attempts: int
    first_seconds: float
    cost: float
    best_cost: float | None
    best_first: float | None

    @property
    def failed(self) -> bool:
        """Return true if the client got less than a whole reply."""
        return bool(self.failure)


@dataclass(frozen=True, slots=True)
class Order:
    """A request that will be made."""

    number: int
    at: float
    wanted: frozenset[str]


def orders(seconds: float, rate: float, seed: int) -> Sequence[Order]:
    """Requests that come by chance, ``rate`` a second; four in ten need an ability."""
    chance = random.Random(seed)
    out: list[Order] = []
    at = 0.0
    while (at := at + chance.expovariate(rate)) < seconds:
        wanted = frozenset({chance.choice(ABILITIES)} if chance.random() < 0.4 else ())
        out.append(Order(len(out), at, wanted))
    return out


def best(order: Order, sellers: Sequence[Seller]) -> tuple[float | None, float | None]:
    """The least cost and the shortest time to the first token among those who would answer."""
    there = [
        (seller, fate)
        for seller in sellers
        if seller.can(order.wanted) and (fate := seller.fate(order.at, order.number)).answers
    ]
    cost = min((seller.cost() for seller, _ in there), default=None)
    return cost, min((fate.first_seconds for _, fate in there), default=None)


def alone(order: Order, seller: Seller, sellers: Sequence[Seller]) -> Purchase:
    """Return the purchase of a client that asks only this seller; computed, not measured."""
    fate = seller.fate(order.at, order.number)
    cost, first = best(order, sellers)
    return Purchase(
        at=order.at,
        failure="" if fate.answers else str(fate.ill),
        seller=seller.name,
        attempts=1,
        first_seconds=fate.first_seconds,
        cost=seller.cost() if fate.answers else 0.0,
        best_cost=cost,
        best_first=first,
    )


class Buyers:
    """Clients of one router's door. ``provider`` is what their requests say of providers."""

    def __init__(self, root: str, sellers: Sequence[Seller], provider: dict[str, object]) -> None:
        self._url = f"{root}/router/v1/chat/completions"
        self._sellers = sellers
        self._by_name = {seller.name: seller for seller in sellers}
        self._provider = provider

    async def buy_all(
        self, orders: Sequence[Order], clock: Callable[[], float]
    ) -> Sequence[Purchase]:
        """Make every request at its time."""
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=30)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            asyncio.TaskGroup() as group,
        ):
            bought = []
            for order in orders:
                await asyncio.sleep(max(order.at - clock(), 0))
                bought.append(group.create_task(self._buy(session, order)))
        return [one.result() for one in bought]

    async def _buy(self, session: aiohttp.ClientSession, order: Order) -> Purchase:
        body = {
            "model": MODEL,
            "stream": True,
            "messages": [{"role": "user", "content": f"Request {order.number} of the market"}],
            **{name: _ASKING[name] for name in order.wanted},
        }
        if self._provider:
            body["provider"] = self._provider
        heard = Heard(time.perf_counter())
        async with session.post(self._url, json=body) as response:
            headers = dict(response.headers)
            if response.status != 200:
                heard.failure = (await response.json())["error"]["code"]
            async for line in response.content:
                if line.startswith(b"data: {"):
                    heard.chunk(json.loads(line.removeprefix(b"data: ")))
        seller = self._by_name.get(headers.get("x-served-by", "").split("/")[0])
        cost, best_first = best(order, self._sellers)
        return Purchase(
            at=order.at,
            failure=heard.failure,
            seller=seller.name if seller is not None else "",
            attempts=int(headers.get("x-attempts", 0)),
            first_seconds=heard.first_seconds,
            cost=seller.cost() if seller is not None and not heard.failure else 0.0,
            best_cost=cost,
            best_first=best_first,
        )


class Heard:
    """A stream as a client hears it; until it has a good end it has failed."""

    def __init__(self, begun: float) -> None:
        self._begun = begun
        self.first_seconds = 0.0
        self.failure = "no end"

    def chunk(self, chunk: Mapping[str, Any]) -> None:
        """One more piece."""
        for choice in chunk["choices"]:
            if choice["delta"].get("content") and not self.first_seconds:
                self.first_seconds = time.perf_counter() - self._begun
            if choice["finish_reason"] is not None:
                self.failure = chunk["error"]["code"] if "error" in chunk else ""
