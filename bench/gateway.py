"""The gateway's speed: ours and others', one core each, before an upstream that costs nothing.

The contestant has one core; the mock upstream and the load share another.
Contestants take turns in each round, medians of the rounds are printed, and
whether ours meets its bars. Everything runs on loopback.

    make bench BENCH=bench/gateway.py
    make bench BENCH=bench/gateway.py ARGS="--peers all"
    make bench BENCH=bench/gateway.py ARGS="--full"       # memory after 200,000 requests
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from math import isnan
from pathlib import Path
from time import monotonic

from gateway import bars, plot, yardstick
from gateway.contestant import Contestant, process
from gateway.figures import Figures
from gateway.measure import Load, LoadFailed
from gateway.ours import ours
from gateway.peers import PEERS
from machine.foreign import busy_seconds, own_seconds, stolen_seconds
from machine.idle import PARAMETER, polling, told
from machine.witness import CALM, Witness, witness
from service import free_port

PACED = "stream-40-20000-1"  # a token every 20 ms
FAST = "stream-2000-0-4"
FAST_THINKING = "think-2000-0-4"
SHORT = "stream-20-0-4"
_FEWEST = 3  # measurements, of which medians are worth something
MODELS = ["plain", PACED, FAST, FAST_THINKING, SHORT]


def loads(seconds: float, *, ids: bool) -> dict[str, Load]:
    """Return the loads to measure, by name."""
    found = {
        "latency": Load("plain", 1, seconds),
        "rate 16": Load("plain", 16, seconds),
        "rate 64": Load("plain", 64, seconds),
        "rate 256": Load("plain", 256, seconds),
        "first": Load(PACED, 64, max(seconds, 2.5), spread=0.8),
        "passed": Load(FAST, 16, seconds),
        "rewritten": Load(FAST_THINKING, 16, seconds),
    }
    return {what: replace(load, ids=ids) for what, load in found.items()}


def measured(
    contestants: Sequence[Contestant],
    rounds: int,
    of_a_round: Mapping[str, Load],
    core: int,
    enough: Callable[[Mapping[str, Figures]], bool],
) -> dict[str, Figures]:
    """Everybody's figures, taken in turns, for so many rounds or until they are ``enough``."""
    figures = {each.name: Figures() for each in contestants}
    for number in range(rounds):
        for what, load in of_a_round.items():
            for each in contestants:
                kept = figures[each.name]
                if what in kept.failures or (what == "rewritten" and not each.rewrites):
                    continue
                try:
                    kept.results.setdefault(what, []).append(load.run(each, core))
                except (LoadFailed, subprocess.TimeoutExpired) as failure:
                    kept.failures[what] = str(failure)
                    print(f"  failed: {failure}", flush=True)
        print(f"round {number + 1} of {rounds} done", flush=True)
        if enough(figures):
            break
    return figures


def undisturbed(figures: Mapping[str, Figures], watch: Witness, fewest: int) -> dict[str, Figures]:
    """Of each load and contestant the measurements in which no core was slow."""
    spans = [
        result.span
        for found in figures.values()
        for results in found.results.values()
        for result in results
    ]
    calm = {span for span, share in zip(spans, watch.calm(spans), strict=True) if share >= CALM}
    return {
        name: found.only(lambda result: result.span in calm, fewest)
        for name, found in figures.items()
    }


def calm_enough(watch: Witness, wanted: int, figures: Mapping[str, Figures]) -> bool:
    """Return true if everything was measured undisturbed so often; never if none are ``wanted``."""
    found = undisturbed(figures, watch, 0).values()
    return 0 < wanted <= min(count for each in found for count in each.counts())


def compare(figures: dict[str, Figures]) -> None:
    """One table of all."""
    direct = figures["direct"]
    heads = [
        "", "req/s 16", "req/s 64", "req/s 256", "CPU µs", "= req/s", "+p50 ms", "+p99 ms",
        "first +p50", "first +p99", "µs a token", "chunks/s", "= chunks/s",
    ]  # fmt: skip
    rows = []
    for name, own in figures.items():
        rates = [f"{own.of(f'rate {count}', 'rate'):,.0f}" for count in (16, 64, 256)]
        added = [
            f"{own.of(load, what) - direct.of(load, what):.3f}"
            for load, what in (
                ("latency", "p50"),
                ("latency", "p99"),
                ("first", "first_p50"),
                ("first", "first_p99"),
            )
        ]
        costs = own.of("rate 16", "cpu"), own.of("passed", "cpu")
        shown = [f"{costs[0]:.1f}", f"{per_core(costs[0]):,.0f}", *added]
        shown.append(f"{own.of('first', 'cpu'):.1f}")
        chunks = [f"{own.of('passed', 'chunks'):,.0f}", f"{per_core(costs[1]):,.0f}"]
        if own is direct:
            shown, chunks[1] = [""] * 7, ""
        rows.append([name, *rates, *shown, *chunks])
    print()
    bars.table(heads, [[cell.replace("nan", "–") for cell in row] for row in rows], print)


def per_core(microseconds: float) -> float:
    """Return the requests a second of one core that nobody else uses."""
    return 1e6 / microseconds if microseconds else float("nan")


def judged(figures: Mapping[str, Figures], own: Figures, memory: float) -> list[str]:
    """Our figures alongside their bars.

    Rates also by processor time; requests per second as they would be on the machine of the bars.
    """
    direct, speed = figures["direct"], yardstick.speed(rates_16(figures))

    def added(bar: bars.Bar, load: str, what: str) -> str:
        return bar.line(own.of(load, what) - direct.of(load, what))

    def rate(bar: bars.Bar, load: str) -> str:
        found = own.of(load, "rate")
        return bar.line(found, per_core(own.of(load, "cpu")), found / speed)

    def chunks(bar: bars.Bar, load: str) -> str:
        return bar.line(own.of(load, "chunks"), per_core(own.of(load, "cpu")))

    return [
        *(rate(bar, f"rate {count}") for count, bar in bars.RATE.items()),
        added(bars.LATENCY_P50, "latency", "p50"),
        added(bars.LATENCY_P99, "latency", "p99"),
        added(bars.FIRST_P50, "first", "first_p50"),
        added(bars.FIRST_P99, "first", "first_p99"),
        chunks(bars.PASSED, "passed"),
        chunks(bars.REWRITTEN, "rewritten"),
        bars.MEMORY.line(memory),
    ]


def rates_16(figures: Mapping[str, Figures]) -> dict[str, float]:
    """Everybody's requests per second at 16 connections, where there are such."""
    found = {name: own.of("rate 16", "rate") for name, own in figures.items()}
    return {name: rate for name, rate in found.items() if not isnan(rate)}


def verdict(figures: Mapping[str, Figures], own: str, memory: float) -> None:
    """Our figures alongside their bars, and how fast this machine was meanwhile."""
    print()
    print(bars.HEAD, *judged(figures, figures[own], memory), sep="\n")
    shares = yardstick.shares(rates_16(figures))
    if shares:
        told = ", ".join(f"{name} {share:.2f}" for name, share in shares.items())
        print(f"Of their rates on the machine of the bars others reach here: {told}.")


def endurance(contestant: Contestant, requests: int, streams: int, core: int) -> float:
    """Memory after that many, in MB; prints how it grew."""
    steps = 4
    for number in range(1, steps + 1):
        Load("plain", 64, 600, count=requests // steps).run(contestant, core)
        Load(SHORT, 64, 600, count=streams // steps).run(contestant, core)
        done = f"{requests * number // steps:,} requests, {streams * number // steps:,} streams"
        print(f"  after {done}: {contestant.megabytes():.1f} MB", flush=True)
    return contestant.megabytes()


def started(
    stack: ExitStack, options: argparse.Namespace, folder: Path, cores: tuple[int, int]
) -> list[Contestant]:
    """The mock, ours and the peers that can be started."""
    port = free_port()
    mock = f"http://127.0.0.1:{port}"
    here = str(Path(__file__).parent)
    command = [sys.executable, "-m", "gateway.mock", str(port), str(cores[1])]
    environ = {"PYTHONPATH": here}
    ready = f"{mock}/v1/models"
    upstream = process(command, folder / "mock.log", core=cores[1], ready=ready, environ=environ)
    found = [Contestant("direct", mock, pid=stack.enter_context(upstream))]
    if not options.without_ours:
        found.append(stack.enter_context(ours(mock, MODELS, folder, cores[0], log=options.log)))
        print(f"memory of {found[-1].name}, idle: {found[-1].megabytes():.1f} MB", flush=True)
    for name in options.peers:
        try:
            found.append(stack.enter_context(PEERS[name](mock, folder, cores[0])))
        except (RuntimeError, OSError, subprocess.SubprocessError) as failure:
            print(f"without {name}: {failure}", flush=True)
    return found


def main() -> None:
    """Start, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peers", nargs="+", default=[], choices=["all", *PEERS], help="installed where missing"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--calm", type=int, default=0, help="end when everything was measured so often undisturbed"
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--requests", type=int, default=20_000, help="before memory is read")
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--full", action="store_true", help="200,000 requests and 10,000 streams")
    parser.add_argument("--ids", action="store_true", help="each request has an id in its head")
    parser.add_argument("--log", action="store_true", help="ours logs every request, too")
    parser.add_argument(
        "--polling",
        action="store_true",
        help="idle cores poll for 200 µs, whatever the host chose; as root",
    )
    parser.add_argument("--without-ours", action="store_true", help="only the peers")
    parser.add_argument("--plot", type=Path, help="an SVG file to write")
    options = parser.parse_args()
    if "all" in options.peers:
        options.peers = list(PEERS)
    if options.polling and not (told() and os.access(PARAMETER, os.W_OK)):
        parser.error(f"--polling writes {PARAMETER}, as root of a guest whose governor is haltpoll")
    if options.full:
        options.requests, options.streams = 200_000, 10_000
    print(f"Python {sys.version}")
    available = sorted(os.sched_getaffinity(0))
    cores = (available[0], available[-1])
    if len(available) < 2:
        print("One core for everything: the figures are not those of the gateway alone.")
    with ExitStack() as stack:
        if options.polling:
            stack.enter_context(polling())
        print(told(), end="")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        contestants = started(stack, options, folder, cores)
        memory = float("nan")
        if not options.without_ours:  # of a fresh one: streams as fast as they go are no such load
            memory = endurance(contestants[1], options.requests, options.streams, cores[1])
        watch = stack.enter_context(witness(cores))
        used = [each.cpu_seconds for each in contestants]
        busy, mine, begun = busy_seconds(cores), own_seconds(used), monotonic()
        stolen = stolen_seconds(cores)
        of_a_round = loads(options.seconds, ids=options.ids)
        enough = partial(calm_enough, watch, options.calm)
        figures = measured(contestants, options.rounds, of_a_round, cores[1], enough)
        calm = undisturbed(figures, watch, _FEWEST)
        others = busy_seconds(cores) - busy - (own_seconds(used) - mine)
        stolen = stolen_seconds(cores) - stolen
        passed = (monotonic() - begun) * len(set(cores))
        compare(figures)
        others, stolen = max(others - stolen, 0.0) / passed, stolen / passed
        print(f"\nOther processes used {others:.0%} of the two cores meanwhile,", end=" ")
        print(f"other machines on this host {stolen:.0%}.")
        if options.without_ours:
            return
        own = contestants[1]
        print(f"Memory of {own.name} after all that: {own.megabytes():.1f} MB.")
        verdict(figures, own.name, memory)
        kept, taken = sum(calm[own.name].counts()), sum(figures[own.name].counts())
        print(f"\nOf {taken} measurements of {own.name}, {kept} count as undisturbed.")
        if kept:
            compare(calm)
            verdict(calm, own.name, memory)
        if options.plot is not None:
            costs = {each.name: figures[each.name].of("rate 16", "cpu") for each in contestants[1:]}
            shown = {name: per_core(cost) for name, cost in costs.items() if cost > 0}
            title = "Requests per second and core, at 16 connections"
            options.plot.write_text(plot.bars_svg(title, shown, own.name, 12_000))


if __name__ == "__main__":
    main()
