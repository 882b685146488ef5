"""A whole service in a process of its own, as a user starts it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from starter import Process, started

# Threads of the engine that spin would starve on a machine others use too. A benchmark has
# the machine to itself, and measures what users get.
SHARED_CORES = {"GOMP_SPINCOUNT": "1000"}
AS_USERS: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Service:
    """A running service. ``root`` is its address without a path."""

    root: str
    process: Process
    log: Path

    @property
    def base_url(self) -> str:
        """The base URL of the default door."""
        return f"{self.root}/v1"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(
    folder: Path,
    config: str,
    *,
    ready_seconds: float = 240,
    environment: Mapping[str, str] = SHARED_CORES,
    program: Sequence[str] | None = None,
    port: int | None = None,
) -> Iterator[Service]:
    """``causerie serve`` with this configuration, stopped at the end.

    ``environment`` is what the process gets in addition to ours, where ours does not have it;
    ``program`` is how it is started, where a fork of what is imported already will not do, and
    ``port`` is for a configuration that names its own.
    """
    port = port or free_port()
    (folder / "causerie.toml").write_text(config)
    log = folder / "serve.log"
    words = ["serve", "--port", str(port), "--config", str(folder / "causerie.toml")]
    own = {"XDG_DATA_HOME": str(folder)}  # not the data of who runs the tests
    variables = {**own, **environment, **os.environ, "NO_COLOR": "1"}
    with log.open("wb") as out:
        process = started(words, variables, out, program)
    service = Service(f"http://127.0.0.1:{port}", process, log)
    try:
        await_ready(service, time.monotonic() + ready_seconds)
        yield service
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


def await_ready(service: Service, deadline: float) -> None:
    """Wait until a service is ready; raise ``AssertionError`` with its log if it is not."""
    while True:
        try:
            with urllib.request.urlopen(f"{service.root}/health/ready", timeout=60):
                return
        except (urllib.error.URLError, OSError) as error:
            if service.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{error}\n{service.log.read_text()}") from error
        time.sleep(0.05)  # another process: there is nothing to await but its answer
