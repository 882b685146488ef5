"""Starts services out of an interpreter that has imported them already.

Of the processor time that a service needs until it is ready, imports are five sixths; a fork has
them. :func:`started` gives the process, which is then as ``python -m causerie`` would be: with its
own environment, folder, output and signals, and in nothing else related to the test's.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import itertools
import json
import os
import runpy
import secrets
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import IO, Any, BinaryIO, NoReturn, Protocol

_IMPORTED = (
    "causerie.cli.root",
    "causerie.cli.announcement",
    "causerie.cli.chat",
    "causerie.cli.chat_session",
    "causerie.cli.models",
    "causerie.cli.serve",
    "causerie.cli.models",
    "causerie.composition.account_backend",
    "causerie.composition.account_frontend",
    "causerie.composition.app",
    "causerie.composition.entries",
    "causerie.engines.weights.fetching",
    "causerie.engines.weights.reference",
    "causerie.observe.logging",
    "uvloop",
    "pydantic.type_adapter",  # which Typer reads words with
)
_OWN_TO_A_PROCESS = "causerie.http.exchange"  # its random numbers would be the same in every fork
_LEDGER = "causerie.metering.ledger"  # so would the ids of its records
_DIGITS = 12
PROGRAM = (sys.executable, "-m", "causerie")
_turn = Lock()
Streams = tuple[IO[bytes], IO[bytes], IO[bytes]]


class Process(Protocol):
    """What tests need of a :class:`subprocess.Popen`, and all that a fork has of it."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class Forked:
    """A process that is a child of the starter's; ``report`` says how it ended."""

    def __init__(self, report: int) -> None:
        self._report = report
        self._turn = Lock()  # several threads may wait
        self.returncode: int | None = None
        self.pid = _read(report)

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            reading = select.poll()
            reading.register(self._report, select.POLLIN)
            if not reading.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(f"causerie, process {self.pid}", timeout or 0)
        with self._turn:
            if self.returncode is None:
                self.returncode = _read(self._report)
                os.close(self._report)
        return self.returncode

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def started(
    words: Sequence[str],
    environment: Mapping[str, str],
    log: BinaryIO,
    program: Sequence[str] | None = None,
) -> Process:
    """``causerie`` with these words, whose output goes to ``log``.

    It is a fork unless a ``program`` is named, or variables that only an interpreter's start reads.
    """
    if program or of_python(environment) != _OF_PYTHON:
        return subprocess.Popen(
            [*(program or PROGRAM), *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
        )
    with Path(os.devnull).open("rb") as nothing:
        return forked(words, environment, (nothing, log, log), Path.cwd())


def forked(
    words: Sequence[str],
    environment: Mapping[str, str],
    streams: Streams,
    folder: Path,
) -> Forked:
    """``causerie`` with these words in a folder, on what are its input, output and errors."""
    report, reporting = os.pipe()
    order = {"words": list(words), "environment": dict(environment), "folder": str(folder)}
    line = json.dumps(order).encode() + b"\n"
    with _turn:
        starter = _starter()
        files = [*(stream.fileno() for stream in streams), reporting]
        sent = socket.send_fds(starter, [line], files)
        os.close(reporting)
        starter.sendall(line[sent:])
        return Forked(report)


def of_python(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that only an interpreter's start reads."""
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}


_OF_PYTHON = of_python(os.environ)


@cache
def _starter() -> socket.socket:
    """The connection to the one starter of this process, which ends with the connection."""
    ours, its = socket.socketpair()
    with its:
        process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(its.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, **_OF_PYTHON},
            pass_fds=[its.fileno()],
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _read(report: int) -> int:
    return int(os.read(report, _DIGITS))


def _write(report: int, number: int) -> None:
    os.write(report, b"%*d" % (_DIGITS, number))


def _carry_out(orders: socket.socket) -> Sequence[str] | None:
    """Return the words for a service in its process, and nothing when there are no more orders."""
    while True:
        line, files, *_ = socket.recv_fds(orders, 1 << 16, 4)
        while line and not line.endswith(b"\n"):
            line += orders.recv(1 << 16)
        if not line:
            return None
        *streams, reporting = files
        if os.fork() == 0:
            orders.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            service = os.fork()
            if service == 0:
                os.close(reporting)
                return _become(json.loads(line), streams)
            _close(streams)
            _keep(service, reporting)
        _close([*streams, reporting])


def _close(files: Sequence[int]) -> None:
    for file in files:
        os.close(file)


def _become(order: Mapping[str, Any], streams: Sequence[int]) -> Sequence[str]:
    """Be as an interpreter is that has been started like that."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    _close(streams)
    os.chdir(order["folder"])
    sys.path.insert(0, order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    importlib.reload(sys.modules[_OWN_TO_A_PROCESS])
    vars(sys.modules[_LEDGER])["_counter"] = itertools.count(secrets.randbits(62))
    words: Sequence[str] = order["words"]
    return words


def _keep(service: int, reporting: int) -> NoReturn:
    """Wait for a service, and say how it ended, as only its parent may ask."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _write(reporting, service)
    _, status = os.waitpid(service, 0)
    _write(reporting, os.waitstatus_to_exitcode(status))
    os._exit(0)


def main() -> None:
    """Import all, and start what is ordered."""
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what is never looked at is never copied
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how those ended that keep
    words = _carry_out(socket.socket(fileno=int(sys.argv[1])))
    if words is not None:
        sys.argv = ["causerie", *words]
        runpy.run_module("causerie", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
