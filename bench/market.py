"""A market of twenty endpoints: how well the router chooses, alongside the best choice in
hindsight.

Each endpoint is an HTTP server on loopback with a script: its price, its speed,
what it cannot do, and when it refuses, is full, says nothing, drops connections,
breaks replies off or is slow. What it does depends on the time and the number
of the request alone, so for each request it is known what every other endpoint
would have done. Clients send the same requests at the same times to a fresh
service for each policy; what they pay, wait and see failing is set alongside the
best that could have been had. Two strategies without a router are reckoned from
the scripts: whoever is cheapest, and anybody, without a second try.

    make bench BENCH=bench/market.py
    make bench BENCH=bench/market.py ARGS="--seconds 60 --svg docs/pictures/market.svg"
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles

from market.buyer import MODEL, Buyers, Order, Purchase, alone, orders
from market.curves import Line, Panel, curves_svg
from market.seller import ABILITIES, Seller, sellers
from market.stall import stalls
from service import AS_USERS, serving
from starter import PROGRAM

POLICIES: Mapping[str, dict[str, object]] = {
    "router, default": {},
    "router, sort: price": {"sort": "price"},
    "router, sort: latency": {"sort": "latency"},
    "router, sort: throughput": {"sort": "throughput"},
}
BEST = "best in hindsight"
KNOWN = ("max_tokens", "stop", "temperature", "tool_choice")
_WINDOW_SECONDS = 2.0


def config(market: Sequence[Seller], addresses: Sequence[str]) -> str:
    """A router's door whose one model everybody sells."""
    lines = ["[[doors]]", 'name = "router"', 'kind = "router"', 'keys = "off"']
    for seller, address in zip(market, addresses, strict=True):
        lines += ["[[providers]]", f'name = "{seller.name}"', f'base_url = "{address}"']
        lines += ['dialect = "vllm"', "[providers.timeouts]", "first_token = 3"]
        lines += ["[providers.health]", 'path = ""']
        lines += ["[[providers.models]]", 'id = "m"', "continues = true"]
    lines += ["[[catalog]]", f'id = "{MODEL}"']
    for seller in market:
        known = [*KNOWN, *(name for name in ABILITIES if name not in seller.lacks)]
        price = f'{{ prompt = "{seller.prompt_price}", completion = "{seller.reply_price}" }}'
        lines += ["[[catalog.endpoints]]", f'provider = "{seller.name}"', 'model = "m"']
        lines += [f"price = {price}", f"supported_parameters = {json.dumps(known)}"]
    return "\n".join(lines) + "\n"


class Clock:
    """Seconds since the market has opened; it opens anew for each policy."""

    def __init__(self) -> None:
        self.opened = time.perf_counter()

    def __call__(self) -> float:
        return time.perf_counter() - self.opened


async def measured(
    market: Sequence[Seller], made: Sequence[Order], provider: dict[str, object]
) -> Sequence[Purchase]:
    """Measure the clients of a fresh service."""
    clock = Clock()
    async with stalls(market, clock) as addresses:
        with ExitStack() as held, tempfile.TemporaryDirectory() as folder:
            service = serving(
                Path(folder), config(market, addresses), environment=AS_USERS, program=PROGRAM
            )
            there = await asyncio.to_thread(held.enter_context, service)
            clock.opened = time.perf_counter()
            bought = await Buyers(there.root, market, provider).buy_all(made, clock)
            await asyncio.to_thread(held.close)
            return bought


def reckoned(
    market: Sequence[Seller], made: Sequence[Order], seed: int
) -> dict[str, list[Purchase]]:
    """Compute the results of clients without a router."""
    chance = random.Random(seed)
    able = [[seller for seller in market if seller.can(order.wanted)] for order in made]
    pick: Mapping[str, Callable[[list[Seller]], Seller]] = {
        "the cheapest, alone": lambda there: min(there, key=Seller.cost),
        "anybody, alone": chance.choice,
    }
    return {
        name: [alone(order, choose(there), market) for order, there in zip(made, able, strict=True)]
        for name, choose in pick.items()
    }


def row(name: str, bought: Sequence[Purchase]) -> list[str]:
    """A line of the table; cost and times are of the requests that were answered."""
    good = [one for one in bought if not one.failed]
    failed = len(bought) - len(good)
    hopeless = sum(one.best_cost is None for one in bought)
    first = sorted(one.first_seconds for one in good)
    least = sum(one.best_cost or 0 for one in good)
    ideal = [one.best_first for one in good if one.best_first is not None]
    return [
        name,
        f"{len(bought)}",
        f"{failed} ({failed / len(bought):.1%})",
        f"{hopeless}",
        f"{sum(one.cost for one in good) / least:.2f}",
        f"{median(first) * 1000:.0f}",
        f"{quantiles(first, n=20)[-1] * 1000:.0f}",
        f"{median(first) / median(ideal):.2f}",
        f"{sum(max(one.attempts, 1) for one in bought) / len(bought):.2f}",
    ]


TITLES = (
    "policy", "requests", "failures seen", "of those unavoidable", "cost, of the best",
    "first token p50 ms", "p95 ms", "p50, of the best", "attempts",
)  # fmt: skip


def table(rows: Sequence[Sequence[str]]) -> str:
    """The rows as Markdown."""
    lines = [TITLES, ["---"] * len(TITLES), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def curves(results: Mapping[str, Sequence[Purchase]]) -> Sequence[Panel]:
    """Cost and failures as they add up, and the time to the first token as it moves."""
    any_run = next(iter(results.values()))
    best_cost = [(one.at, one.best_cost or 0.0) for one in any_run]
    best_first = [(one.at, one.best_first) for one in any_run if one.best_first is not None]
    cost: dict[str, Line] = {BEST: _added(best_cost, 1)}
    first: dict[str, Line] = {BEST: _moving([(at, value * 1000) for at, value in best_first])}
    failed: dict[str, Line] = {}
    for name, bought in results.items():
        good = [one for one in bought if not one.failed]
        # What was not got costs as the best would have, so that failing does not look cheap.
        paid = [(one.at, (one.best_cost or 0.0) if one.failed else one.cost) for one in bought]
        cost[name] = _added(paid, 1)
        first[name] = _moving([(one.at, one.first_seconds * 1000) for one in good])
        failed[name] = _added([(one.at, float(one.failed)) for one in bought], 1)
    return (
        Panel("Cost so far, dollars", cost),
        Panel(f"Time to the first token, ms, median of {_WINDOW_SECONDS:.0f} s", first),
        Panel("Failures that clients have seen", failed),
    )


def _added(points: Line, factor: float) -> Line:
    out, total = [], 0.0
    for at, value in points:
        total += value * factor
        out.append((at, total))
    return out


def _moving(points: Line) -> Line:
    out = []
    for at, _ in points:
        near = [value for then, value in points if at - _WINDOW_SECONDS < then <= at]
        out.append((at, median(near)))
    return out


async def main() -> None:
    """Open the market once for each policy; print the table, draw the curves."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--seconds", type=float, default=15.0, help="of each policy")
    options.add_argument("--rate", type=float, default=20.0, help="requests per second")
    options.add_argument("--endpoints", type=int, default=20)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--svg", type=Path, default=Path(tempfile.gettempdir()) / "market.svg")
    asked = options.parse_args()
    market = sellers(asked.endpoints, asked.seconds, asked.seed)
    made = orders(asked.seconds, asked.rate, asked.seed)
    results: dict[str, Sequence[Purchase]] = {}
    for name, provider in POLICIES.items():
        results[name] = await measured(market, made, provider)
        why = Counter(one.failure for one in results[name] if one.failed)
        print(f"{name}: {len(results[name])} requests, failures: {dict(why) or 'none'}", flush=True)
    results |= reckoned(market, made, asked.seed)
    print(table([row(name, bought) for name, bought in results.items()]))
    asked.svg.write_text(curves_svg("A market of endpoints", curves(results)), encoding="utf-8")
    print(f"curves: {asked.svg}")


if __name__ == "__main__":
    asyncio.run(main())
