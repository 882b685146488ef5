"""A Valkey or Redis server of the tests' own: on a free port, in memory only, gone with them.

The program comes from the system's packages (`make valkey`). Where it is
missing, the tests that need it say so and are skipped.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from certificates import Certificates

_SECONDS = 60


def program() -> str | None:
    """Its program, where there is one."""
    return shutil.which("valkey-server") or shutil.which("redis-server")


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


class ValkeyServer:
    """One server, which can be paused, killed and started again on the same port."""

    def __init__(self, *, password: str | None = None, tls: Certificates | None = None) -> None:
        self.port = _free_port()
        self.password = password
        self._tls = tls
        self._folder = tempfile.mkdtemp(prefix="causerie-valkey-")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return self.through(self.port)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def through(self, port: int) -> str:
        """The address by way of a proxy at this port."""
        user = f":{quote(self.password)}@" if self.password else ""
        scheme = "valkey" if self._tls is None else "valkeys"
        return f"{scheme}://{user}127.0.0.1:{port}/0"

    def start(self) -> None:
        """Returns when it answers."""
        binary = program()
        assert binary is not None
        command = [binary, "--bind", "127.0.0.1", "--save", "", *self._listening()]
        command += ["--appendonly", "no", "--dir", self._folder]
        if self.password:
            command += ["--requirepass", self.password]
        with (Path(self._folder) / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + _SECONDS
        while True:
            assert self._process.poll() is None, (Path(self._folder) / "log").read_text()
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                assert time.monotonic() < deadline, "the server did not start"
                time.sleep(0.02)
            else:
                return

    def _listening(self) -> list[str]:
        if self._tls is None:
            return ["--port", str(self.port)]
        files = self._tls
        return [
            *("--port", "0", "--tls-port", str(self.port), "--tls-auth-clients", "no"),
            *("--tls-cert-file", str(files.certificate), "--tls-key-file", str(files.key)),
            *("--tls-ca-cert-file", str(files.ca)),
        ]

    def pause(self) -> None:
        """It hangs: connections stay, nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """It is gone with all it had."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_SECONDS)
            self._process = None

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self._folder)


@pytest.fixture(scope="session")
def valkey() -> Iterator[ValkeyServer]:
    """One for all tests that do not harm it."""
    if program() is None:
        pytest.skip("no valkey-server or redis-server here (`make valkey`)")
    made = ValkeyServer()
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def own_valkey() -> Iterator[ValkeyServer]:
    """One to be paused and killed."""
    if program() is None:
        pytest.skip("no valkey-server or redis-server here (`make valkey`)")
    made = ValkeyServer(password="pass of the tests")
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def tls_valkey(certificates: Certificates) -> Iterator[ValkeyServer]:
    """One that speaks TLS only."""
    if program() is None:
        pytest.skip("no valkey-server or redis-server here (`make valkey`)")
    made = ValkeyServer(password="pass of the tests", tls=certificates)
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="session", params=["memory", "shared"])
def counted_in(request: pytest.FixtureRequest) -> ValkeyServer | None:
    """Return the place of counts: memory (``None``), or this server."""
    if request.param == "memory":
        return None
    made: ValkeyServer = request.getfixturevalue("valkey")
    return made
