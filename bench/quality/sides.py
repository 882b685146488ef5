"""The two sides: the service, and the engine's own server with its chat endpoint."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from service import free_port

_SECONDS = 600.0  # for one reply on a busy machine
_ENGINE = """
import sys, time, xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.n_ctx, p.n_parallel = sys.argv[1], int(sys.argv[3]), 1
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = int(sys.argv[4])
p.hostnames, p.port, p.use_jinja = ["127.0.0.1"], int(sys.argv[2]), True
s = xllamacpp.Server(p)
time.sleep(86400)
"""


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply as a client reads it; ``refusal`` is the error of a request that had none."""

    content: str = ""
    calls: Sequence[tuple[str, str]] = ()
    """Names, and arguments as text."""
    finish: str = ""
    refusal: str = ""


def ask(root: str, body: Mapping[str, Any]) -> Reply:
    """Ask for a chat completion at temperature 0, for the same answer each time."""
    sent = json.dumps({"model": "quality", "temperature": 0, **body}).encode()
    request = urllib.request.Request(
        f"{root}/v1/chat/completions", sent, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as response:
            choice = json.load(response)["choices"][0]
    except urllib.error.HTTPError as failure:
        return Reply(refusal=f"{failure.code} {failure.read(500).decode(errors='replace')}")
    message = choice["message"]
    calls = [
        (one["function"]["name"], one["function"]["arguments"])
        for one in message.get("tool_calls") or ()
    ]
    return Reply(message.get("content") or "", calls, choice["finish_reason"])


@dataclass(frozen=True, slots=True)
class Asked:
    """Asks the sides, by their names and addresses, and remembers the replies in a file."""

    roots: Mapping[str, str]
    file: Path | None = None
    known: dict[str, Reply] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.file is not None and self.file.exists():
            whole, end, cut = self.file.read_text().rpartition("\n")
            if cut:  # the run ended while it was written
                self.file.write_text(whole + end)
            for line in map(json.loads, whole.splitlines()):
                key = line.pop("key")
                self.known[key] = Reply(**line)

    def reply(self, side: str, task: str, body: Mapping[str, Any]) -> Reply:
        """Return a side's reply to a task: the one of the file, if it is there."""
        key = f"{side} {task}"
        if key not in self.known:
            self.known[key] = reply = ask(self.roots[side], body)
            if self.file is not None:
                with self.file.open("a") as out:
                    out.write(json.dumps({"key": key, **asdict(reply)}) + "\n")
        return self.known[key]


def delivered_calls(root: str) -> list[str]:
    """Return the lines of the service's metrics that count delivered calls by error class."""
    with urllib.request.urlopen(f"{root}/metrics", timeout=_SECONDS) as response:
        lines = response.read().decode().splitlines()
    return [line for line in lines if line.startswith("causerie_tool_calls_total{")]


@contextmanager
def bare_engine(weights: Path, context: int, threads: int) -> Iterator[str]:
    """Start the engine's own server with the model's template; yield its address."""
    port = free_port()
    numbers = map(str, (port, context, threads))
    command = [sys.executable, "-c", _ENGINE, str(weights), *numbers]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    root = f"http://127.0.0.1:{port}"
    try:
        _await_ready(root, process)
        yield root
    finally:
        process.kill()
        process.wait()


def _await_ready(root: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{root}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("the engine's own server did not start")
