"""The service in front of a vLLM server, against that server's own chat endpoint.

Both ask the same server, in turns: the same requests, read by the same clients. Printed are tokens
a second and the time to the first token, and what the service's share of vLLM's own figure is.

    make bench BENCH=bench/vllm_served.py ARGS="--model FOLDER --vllm /opt/vllm/bin/vllm"

With ``--random-weights`` the folder needs a configuration, a tokenizer and any `.safetensors` file,
which is not read. With ``--scripted`` a program without a model takes the server's place, so that
the processor time of the service's own processes is all that is measured, and printed: for each
token, and for each request of one token.

    make bench BENCH=bench/vllm_served.py ARGS="--scripted --workers 1 2 --rounds 5"
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from gateway.contestant import Contestant, await_answer
from service import free_port
from vllm_stand_in import model_folder

TOKENS = 128  # of each reply
MOST = 512  # streams that the server takes at once
CLIENTS = 4  # processes
BAR = 0.97
CONFIG = """
[server]
workers = {workers}

[[models]]
id = "m"
ref = "{folder}"
engine = "vllm"
preload = true

[models.vllm]
addresses = ["{address}"]
parallel = {most}
"""


@dataclass(frozen=True)
class Asked:
    """One measurement."""

    rate: float
    waits: Sequence[float]

    @property
    def p50(self) -> float:
        return median(self.waits)

    @property
    def p90(self) -> float:
        return quantiles(self.waits, n=10)[8] if len(self.waits) > 1 else self.waits[0]


@contextmanager
def running(command: Sequence[str], log: Path, ready: str, seconds: float) -> Iterator[int]:
    """A process that answers ``ready``; ended at the end. Yields its id."""
    with log.open("wb") as out:
        one = subprocess.Popen(
            command, stdout=out, stderr=out, start_new_session=True, env=environment()
        )
    try:
        await_answer(ready, one, log, time.monotonic() + seconds)
        yield one.pid
    finally:
        one.terminate()
        try:
            one.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(one.pid, 9)


def environment() -> dict[str, str]:
    """Return that of processes which import from here."""
    place = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    return {**os.environ, "PYTHONPATH": place, "NO_COLOR": "1"}


def vllm(told: argparse.Namespace, port: int) -> list[str]:
    """Return the command of the server, with what the service asks of one that others run."""
    where = ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "m"]
    needed = ["--structured-outputs-config", '{"backend": "guidance"}', "--max-logprobs", "20"]
    needed += ["--enable-prompt-tokens-details", "--disable-uvicorn-access-log"]
    size = ["--max-model-len", "2048", "--max-num-seqs", str(MOST), "--generation-config", "vllm"]
    random = ["--load-format", "dummy"] if told.random_weights else []
    return [told.vllm, "serve", str(told.model), *where, *needed, *size, *random, *told.args]


def asked(url: str, streams: int, requests: int, tokens: int = TOKENS) -> Asked:
    """Ask by several clients at once, for replies of so many ``tokens``."""
    clients = min(CLIENTS, streams)
    shares = [streams // clients + (at < streams % clients) for at in range(clients)]
    start = str(time.time() + 2)
    command = [sys.executable, "-m", "vllm_pool.asker", url, "none", "m"]
    processes = [
        subprocess.Popen(
            [*command, str(share), str(requests), str(tokens), start],
            stdout=subprocess.PIPE,
            env=environment(),
        )
        for share in shares
    ]
    found = [json.loads(one.communicate()[0]) for one in processes]
    rate = sum(one["tokens"] for one in found) / max(one["seconds"] for one in found)
    return Asked(rate, [wait for one in found for wait in one["waits"]])


def measured(
    urls: dict[str, str], streams: Sequence[int], rounds: int
) -> dict[int, dict[str, list[Asked]]]:
    """Return all measurements, taken in turns, by streams and by who answered."""
    found: dict[int, dict[str, list[Asked]]] = {}
    for each in urls.values():
        asked(each, 8, 1)  # what is slow the first time
    for number in range(rounds):
        for count in streams:
            of_count = found.setdefault(count, {})
            for name, url in urls.items():
                of_count.setdefault(name, []).append(asked(url, count, 3 if count > 1 else 6))
        print(f"round {number + 1} of {rounds} done", flush=True)
    return found


def shown(found: dict[int, dict[str, list[Asked]]]) -> bool:
    """Print the table; return whether the service gives its share at any number of streams."""
    met = True
    print("streams  who answers      tokens/s   share   TTFT p50    p90 (ms)")
    for count, of_count in found.items():
        own = median(one.rate for one in of_count["vllm"])
        for name, results in of_count.items():
            rate = median(one.rate for one in results)
            p50, p90 = (
                median(value) * 1000
                for value in ([r.p50 for r in results], [r.p90 for r in results])
            )
            print(f"{count:7}  {name:14} {rate:10,.0f}   {rate / own:5.2f} {p50:10.1f} {p90:7.1f}")
        best = max(
            median(one.rate for one in of_count[name]) for name in of_count if name != "vllm"
        )
        met &= best >= BAR * own
    return met


def costs(services: Sequence[Contestant], rounds: int) -> dict[int, dict[str, list[float]]]:
    """Return the microseconds of processor time of a token, for replies of one and of many."""
    found: dict[int, dict[str, list[float]]] = {1: {}, TOKENS: {}}
    for each in services:
        asked(f"{each.root}/v1", 4, 1)  # what is slow the first time
    for number in range(rounds):
        for tokens, of_length in found.items():
            for each in services:
                before = each.cpu_seconds()
                done = asked(f"{each.root}/v1", 16, 30 // tokens + 3, tokens)
                seconds = each.cpu_seconds() - before
                of_length.setdefault(each.name, []).append(
                    seconds / (len(done.waits) * tokens) * 1e6
                )
        print(f"round {number + 1} of {rounds} done", flush=True)
    return found


def shown_costs(found: dict[int, dict[str, list[float]]]) -> None:
    """Print the medians, and what share of the first service's time each one takes."""
    for tokens, of_length in found.items():
        print("\na request of one token" if tokens == 1 else f"\na token of replies of {tokens}")
        alone, *_ = of_length.values()
        for name, results in of_length.items():
            share = median(each / one for each, one in zip(results, alone, strict=True))
            print(f"  {name:10} {median(results):7.1f} µs, {share:.2f} of the first")


@contextmanager
def serving(
    folder: Path, ref: Path, address: str, workers: Sequence[int]
) -> Iterator[list[Contestant]]:
    """A service in front of the server for each number of workers."""
    with ExitStack() as stack:
        found = []
        for count in workers:
            own, config = free_port(), folder / f"{count}.toml"
            text = CONFIG.format(workers=count, folder=ref, address=address, most=MOST)
            config.write_text(text)
            command = [sys.executable, "-m", "causerie", "serve", "--port", str(own)]
            at = f"http://127.0.0.1:{own}"
            log, command = folder / f"{count}.log", [*command, "--config", str(config)]
            pid = stack.enter_context(running(command, log, f"{at}/health/ready", 300))
            found.append(Contestant(f"{count} worker" + "s" * (count > 1), at, pid))
        yield found


def scripted(told: argparse.Namespace, folder: Path) -> None:
    """Measure the processor time of services in front of a server without a model."""
    (folder / "model").mkdir()
    model, port = model_folder(folder / "model"), free_port()
    address, log = f"http://127.0.0.1:{port}", folder / "scripted.log"
    command = [sys.executable, "-m", "vllm_pool.scripted", str(model), str(port)]
    with (
        running(command, log, f"{address}/health", 60),
        serving(folder, model, address, told.workers) as services,
    ):
        shown_costs(costs(services, told.rounds))


def main() -> None:
    """Measure and print; exit with 1 where the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a folder")
    parser.add_argument("--vllm", default="vllm", help="the program")
    parser.add_argument("--scripted", action="store_true")
    parser.add_argument("--random-weights", action="store_true")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 16, 64, 256])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--args", nargs=argparse.REMAINDER, default=[], help="more for vLLM")
    told = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if told.scripted:
            return scripted(told, folder)
        port = free_port()
        address = f"http://127.0.0.1:{port}"
        log = folder / "vllm.log"
        stack.enter_context(running(vllm(told, port), log, f"{address}/health", 900))
        urls = {"vllm": f"{address}/v1"}
        ref = told.model.resolve()
        for each in stack.enter_context(serving(folder, ref, address, told.workers)):
            urls[each.name] = f"{each.root}/v1"
        met = shown(measured(urls, told.streams, told.rounds))
    sys.exit(not met)


if __name__ == "__main__":
    main()
