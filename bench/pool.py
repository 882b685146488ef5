"""A pool of 64 servers, simulated: what is read again, and how long a request waits.

The choice is the service's own code; servers are simulated. Each reads prompts one after the other,
at a fixed rate, and keeps the blocks that it used last. The loads: conversations with long system
prompts that many share; agents that share one; prompts that have nothing in common; and long
beginnings that fit into all memories together and not into one, for 64 servers and for two small
ones, whose events tell what they evict.

    make bench BENCH=bench/pool.py
    make bench BENCH=bench/pool.py ARGS="--index"    # time and memory of ten million blocks

With ``--model FOLDER`` the same choice is asked of real servers: ``--servers`` of them started here
of ``--vllm PROGRAM``, or those at ``--addresses URL...``, each on a host of its own with
``kv_events`` at its ports. Started servers share the first device. With ``--random-weights`` the
folder needs a configuration, a tokenizer and any `.safetensors` file, which is not read.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

from vllm_pool.cache import Cache
from vllm_pool.compared import Servers
from vllm_pool.compared import compared as really_compared
from vllm_pool.measured import Work

from causerie.engines.pool.kv_events import BLOCK, PrefixIndex, chain
from causerie.engines.pool.members import MemberLoad, least_cost

MEMBERS = 64
DECODE = 0.02  # seconds for a token of a reply
REPLY = 160  # tokens
HIT_BAR, TTFT_BAR, ALIKE_BAR = 0.95, 0.5, 1.05


@dataclass(frozen=True)
class Prompt:
    """One request: when it comes, and the blocks of its prompt."""

    at: float
    blocks: Sequence[int]

    @property
    def tokens(self) -> int:
        return len(self.blocks) * BLOCK


@dataclass(frozen=True)
class Load:
    """Prompts, and the servers that they are sent to."""

    name: str
    prompts: Sequence[Prompt]
    members: int = MEMBERS
    cache: int = 8_192  # blocks that a member keeps
    read: float = 8_000.0  # tokens that it reads in a second
    reply: int = REPLY  # tokens
    shared: bool = True  # whether prompts share beginnings
    events: bool = False  # whether members tell what they evict

    @property
    def best_rate(self) -> float:
        """Return the share of hits of one server with the memory of all."""
        cache = Cache(self.cache * self.members)
        hits = sum(cache.read(one.blocks) for one in self.prompts)
        return hits / sum(len(one.blocks) for one in self.prompts)


class Server(MemberLoad):
    """A member with a cache of so many blocks, which has read all that it was sent at ``free``."""

    def __init__(self, name: str, blocks: int) -> None:
        super().__init__(name)
        self.cache = Cache(blocks)
        self.free = 0.0


Choose = Callable[[Sequence[Server], Prompt, PrefixIndex], Server]


def by_prefix(servers: Sequence[Server], prompt: Prompt, index: PrefixIndex) -> Server:
    return least_cost(servers, prompt.tokens, index.runs(prompt.blocks))


def by_load(servers: Sequence[Server], prompt: Prompt, index: PrefixIndex) -> Server:
    return min(servers, key=lambda one: (one.running, one.chosen))


def in_turn(servers: Sequence[Server], prompt: Prompt, index: PrefixIndex) -> Server:
    return min(servers, key=lambda one: one.chosen)


POLICIES: dict[str, Choose] = {
    "by prefix": by_prefix,
    "least load": by_load,
    "round robin": in_turn,
}


@dataclass
class Outcome:
    """Shares of tokens that were not read again, and seconds to the first token."""

    hits: int = 0
    blocks: int = 0
    waits: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.hits / self.blocks

    @property
    def p50(self) -> float:
        return quantiles(self.waits, n=10)[4]

    @property
    def p90(self) -> float:
        return quantiles(self.waits, n=10)[8]


def simulated(load: Load, choose: Choose) -> Outcome:
    """Send all prompts of a load to servers of their own."""
    servers = [Server(str(at), load.cache) for at in range(load.members)]
    index = PrefixIndex(load.members * 32_768)  # as the service has it
    outcome = Outcome()
    later: list[tuple[float, int, Server, int, int]] = []  # what ends when: unread, running
    for number, prompt in enumerate(load.prompts):
        while later and later[0][0] <= prompt.at:
            _, _, server, unread, running = heapq.heappop(later)
            server.unread -= unread
            server.running -= running
        server = choose(servers, prompt, index)
        believed = index.runs(prompt.blocks).get(server.name, 0)
        unread = (len(prompt.blocks) - believed) * BLOCK
        server.chosen, server.running = number + 1, server.running + 1
        server.unread += unread
        held = server.cache.read(prompt.blocks)
        index.add(server.name, prompt.blocks)
        if load.events:
            index.remove(server.name, server.cache.evicted)
        began = max(server.free, prompt.at)
        server.free = began + (len(prompt.blocks) - held) * BLOCK / load.read
        outcome.hits += held
        outcome.blocks += len(prompt.blocks)
        outcome.waits.append(server.free - prompt.at)
        heapq.heappush(later, (server.free, 2 * number, server, unread, 0))
        heapq.heappush(later, (server.free + load.reply * DECODE, 2 * number + 1, server, 0, 1))
    return outcome


def conversations(draw: random.Random, rate: float, seconds: float, systems: int) -> list[Prompt]:
    """Conversations of up to eight turns, each with one of so many system prompts."""
    weights = [1 / (at + 1) for at in range(systems)]
    starts = [_tokens(draw, draw.randrange(1_000, 6_000)) for _ in range(systems)]
    made: list[Prompt] = []
    at = 0.0
    while at < seconds:
        at += draw.expovariate(rate / 4.5)
        text, when = list(draw.choices(starts, weights)[0]), at
        for _ in range(draw.randint(1, 8)):
            text += _tokens(draw, draw.randrange(50, 400))
            made.append(Prompt(when, chain(text)))
            text += _tokens(draw, REPLY)
            when += REPLY * DECODE + draw.uniform(2, 20)
    return sorted(made, key=lambda one: one.at)


def strangers(draw: random.Random, rate: float, seconds: float) -> list[Prompt]:
    """Prompts that have nothing in common."""
    made: list[Prompt] = []
    at = 0.0
    while at < seconds:
        at += draw.expovariate(rate)
        made.append(Prompt(at, chain(_tokens(draw, draw.randrange(200, 4_000)))))
    return made


def beginnings(
    draw: random.Random, rate: float, number: int, tokens: int, own: int, each: int
) -> list[Prompt]:
    """Prompts with one of so many beginnings of so many tokens, ``each`` as many times on average,
    and ``own`` tokens more."""
    starts = [_tokens(draw, tokens) for _ in range(number)]
    made: list[Prompt] = []
    at = 0.0
    for _ in range(number * each):
        at += draw.expovariate(rate)
        made.append(Prompt(at, chain(draw.choice(starts) + _tokens(draw, own))))
    return made


def _tokens(draw: random.Random, number: int) -> list[int]:
    return draw.choices(range(150_000), k=number)


def loads(seed: int, seconds: float) -> Iterator[Load]:
    """Yield each load; those of much memory last so many seconds."""
    draw = random.Random(seed)
    yield Load("64 system prompts", conversations(draw, 120, seconds, 64))
    yield Load("one system prompt", conversations(draw, 120, seconds, 1))
    yield Load("nothing in common", strangers(draw, 120, seconds), shared=False)
    many = beginnings(draw, 120, 512, 1_024, 128, 20)
    yield Load("512 beginnings, little memory", many, cache=768, reply=100, events=True)
    yield Load("the same, without events", many, cache=768, reply=100)
    few = beginnings(draw, 4, 16, 224, 48, 100)
    yield Load("two small servers", few, 2, cache=200, read=1_000.0, reply=8, events=True)


def compared(seed: int, seconds: float) -> bool:
    """Print a table for each load; return whether all bars are met."""
    met = True
    for load in loads(seed, seconds):
        best = load.best_rate
        print(
            f"\n{load.name}: {len(load.prompts)} requests; one cache of all memory hits {best:.1%}"
        )
        found = {policy: simulated(load, choose) for policy, choose in POLICIES.items()}
        for policy, one in found.items():
            share = f" ({one.rate / best:.1%})" if best else ""
            print(f"  {policy:12} hits {one.rate:6.1%}{share}  TTFT {one.p50:.3f} {one.p90:.3f} s")
        ours, by_load, turns = found.values()
        if load.shared:
            met &= ours.rate >= HIT_BAR * best and ours.p90 <= TTFT_BAR * turns.p90
        else:
            met &= ours.p90 <= ALIKE_BAR * by_load.p90
    return met


def index_measured(blocks: int) -> bool:
    """Print time and memory of an index with so many blocks; return whether the bar is met."""
    draw = random.Random(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    index = PrefixIndex(blocks * 4)
    prompts = []
    for at in range(blocks // 256):
        made = [draw.getrandbits(60) for _ in range(256)]
        index.add(str(at % MEMBERS), made)
        if at % 40 == 0:
            prompts.append(made)
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    servers = [Server(str(at), 0) for at in range(MEMBERS)]
    times = []
    for made in prompts * 3:
        began = time.perf_counter()
        least_cost(servers, 256 * BLOCK, index.runs(made))
        times.append(time.perf_counter() - began)
    text = _tokens(draw, 256 * BLOCK)
    hashed = []
    for _ in range(200):
        began = time.perf_counter()
        chain(text)
        hashed.append(time.perf_counter() - began)
    middle = sorted(times)[len(times) // 2]
    print(f"{len(index)} blocks of {MEMBERS} members: {memory / len(index):.0f} bytes a block")
    print(f"choice for 4,096 tokens, held whole: median {middle * 1e6:.0f} µs")
    print(f"hashes of 4,096 tokens: median {sorted(hashed)[100] * 1e6:.0f} µs")
    return middle <= 0.2e-3


def main() -> None:
    """Run what was asked for; exit with 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="simulated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--index", action="store_true", help="measure the index instead")
    parser.add_argument("--model", type=Path, help="measure real servers of this folder instead")
    parser.add_argument("--vllm", metavar="PROGRAM", default="vllm", help="that is started")
    parser.add_argument("--servers", type=int, default=2, help="that are started")
    parser.add_argument("--random-weights", action="store_true", help="of started servers")
    parser.add_argument("--addresses", nargs="+", default=(), help="of servers that run already")
    parser.add_argument("--blocks", type=int, default=160, help="of 32 tokens, of each server")
    parser.add_argument("--beginnings", type=int, default=16, help="that prompts share")
    parser.add_argument("--tokens", type=int, default=512, help="of a beginning")
    parser.add_argument("--requests", type=int, default=320, help="of each policy")
    told = parser.parse_args()
    if told.model is not None:
        addresses, weights = tuple(told.addresses), not told.random_weights
        servers = Servers(
            told.model, told.blocks, told.vllm, told.servers, addresses, weights=weights
        )
        work = Work(told.beginnings, told.tokens, told.requests)
        met = asyncio.run(really_compared(servers, work, told.seed))
    else:
        met = index_measured(10_000_000) if told.index else compared(told.seed, told.seconds)
    print("\nall bars are met" if met else "\na bar is missed")
    sys.exit(not met)


if __name__ == "__main__":
    main()
