"""A PostgreSQL server of the tests' own: in a folder of its own, on a socket, gone with them.

The server's programs come from the system's packages (`make postgres`). Where
they are missing, the tests that need them say so and are skipped.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FOLDERS = ["/usr/lib/postgresql", "/usr/pgsql", "/opt/homebrew/opt/postgresql"]
_SECONDS = 60


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


@contextmanager
def server(bin: Path) -> Iterator[str]:
    """A server with an empty database; gives the folder of its socket."""
    user = _user()
    folder = Path(tempfile.mkdtemp(prefix="causerie-pg-"))
    if user is not None:
        shutil.chown(folder, user)
    data = folder / "data"
    try:
        _run([bin / "initdb", "-D", data, "-U", "causerie", "-A", "trust", "-E", "UTF8"], user)
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                [
                    *(bin / "postgres", "-D", data, "-k", folder),
                    *("-c", "listen_addresses=", "-c", "max_connections=100"),
                    *("-c", "fsync=off"),  # nothing here has to outlive a power cut
                ],
                user=user,
                cwd=folder,
                stdout=log,
                stderr=log,
            )
        try:
            _await(bin, folder, process)
            yield str(folder)
        finally:
            process.send_signal(signal.SIGQUIT)  # at once: the folder goes too
            process.wait(_SECONDS)
    finally:
        shutil.rmtree(folder)


def _user() -> str | None:
    """Whom to run as: the server refuses to be root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _run(command: list[object], user: str | None) -> None:
    done = subprocess.run(
        list(map(str, command)), user=user, cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def _await(bin: Path, folder: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _SECONDS
    command = [str(bin / "pg_isready"), "-q", "-h", str(folder), "-d", "postgres"]
    while subprocess.run(command, check=False).returncode != 0:
        assert process.poll() is None, (folder / "log").read_text()
        assert time.monotonic() < deadline, "PostgreSQL did not start"
        time.sleep(0.05)
