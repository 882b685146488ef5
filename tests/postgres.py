"""A PostgreSQL server of the tests' own: in a folder of its own, on a socket, gone with them.

The server's programs come from the system's packages (`make postgres`). Where
they are missing, the tests that need them say so and are skipped.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from certificates import Certificates

_FOLDERS = ["/usr/lib/postgresql", "/usr/pgsql", "/opt/homebrew/opt/postgresql"]
_SECONDS = 60
_MEMORY = Path("/dev/shm")
_ROOM = 4 << 30  # bytes; the tests need a few hundred megabytes


def programs() -> Path | None:
    """The folder with `initdb` and `postgres`; the newest where there are several."""
    for parent in map(Path, _FOLDERS):
        found = sorted(parent.glob("*/bin/initdb"), key=lambda each: _version(each.parts[-3]))
        if found:
            return found[-1].parent
    named = shutil.which("initdb")
    return Path(named).parent if named and shutil.which("postgres") else None


def _version(name: str) -> int:
    return int(name) if name.isdigit() else 0


def _where() -> Path | None:
    """In memory where there is room: a database is 300 files, and a disk takes minutes for them."""
    if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
        return _MEMORY
    return None


class PostgresServer:
    """One server with an empty database, which can be stopped and started again.

    It listens on a socket in its folder, with certificates also on a port, with TLS only.
    """

    def __init__(self, bin: Path, tls: Certificates | None = None) -> None:
        self._bin = bin
        self._user = _user()
        self._process: subprocess.Popen[bytes] | None = None
        self._options = ["-c", "listen_addresses="]
        self.port = 0
        self.folder = Path(tempfile.mkdtemp(prefix="causerie-pg-", dir=_where()))
        self._give(self.folder)
        initdb = [bin / "initdb", "-D", self._data, "-U", "causerie", "-A", "trust", "-E", "UTF8"]
        _run(initdb, self._user)
        if tls is not None:
            self._speak(tls)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _give(self, path: Path) -> None:
        if self._user is not None:
            shutil.chown(path, self._user)

    def _speak(self, tls: Certificates) -> None:
        for name, file in (("cert.pem", tls.certificate), ("key.pem", tls.key)):
            shutil.copy(file, self.folder / name)
            self._give(self.folder / name)
        access = "local all all trust\nhostssl all all 127.0.0.1/32 trust\n"
        (self._data / "pg_hba.conf").write_text(access)
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            self.port = bound.getsockname()[1]
        self._options = ["-c", "listen_addresses=127.0.0.1", "-c", f"port={self.port}"]
        self._options += ["-c", "ssl=on", "-c", f"ssl_cert_file={self.folder / 'cert.pem'}"]
        self._options += ["-c", f"ssl_key_file={self.folder / 'key.pem'}"]

    def start(self) -> None:
        """Returns when it answers."""
        with (self.folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                [
                    *(self._bin / "postgres", "-D", self._data, "-k", self.folder),
                    *("-c", "max_connections=100"),
                    *("-c", "fsync=off"),  # nothing here has to outlive a power cut
                    *self._options,
                ],
                user=self._user,
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )
        _await(self._bin, self.folder, self._process, self.port)

    def pause(self) -> None:
        """It hangs: connections stay, nothing is answered."""
        self._send(signal.SIGSTOP)

    def go_on(self) -> None:
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        """To the server and to the processes of its connections."""
        assert self._process is not None
        first = self._process.pid
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        for pid in (first, *map(int, children)):
            os.kill(pid, number)

    def stop(self) -> None:
        """At once, as if it had crashed; what it holds is recovered at the next start."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(_SECONDS)
            self._process = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def socket(self) -> Path:
        """The file of its socket."""
        return self.folder / ".s.PGSQL.5432"

    def close(self) -> None:
        """The folder goes too."""
        self.stop()
        shutil.rmtree(self.folder)


@contextmanager
def server(bin: Path, tls: Certificates | None = None) -> Iterator[PostgresServer]:
    """A server that runs."""
    made = PostgresServer(bin, tls)
    try:
        made.start()
        yield made
    finally:
        made.close()


def _user() -> str | None:
    """Return the user to run as: the server refuses to be root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _run(command: list[object], user: str | None) -> None:
    done = subprocess.run(
        list(map(str, command)), user=user, cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def _await(bin: Path, folder: Path, process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _SECONDS
    command = [str(bin / "pg_isready"), "-q", "-h", str(folder), "-d", "postgres"]
    command += ["-p", str(port)] if port else []
    while subprocess.run(command, check=False).returncode != 0:
        assert process.poll() is None, (folder / "log").read_text()
        assert time.monotonic() < deadline, "PostgreSQL did not start"
        time.sleep(0.05)
