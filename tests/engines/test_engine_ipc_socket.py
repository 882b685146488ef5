"""Socket between the service and the engine's process."""

from __future__ import annotations

import os
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from causerie.engines.process import IpcSocket

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no Unix sockets")


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short path for temporary files, of our own."""
    with tempfile.TemporaryDirectory(prefix="m") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def bound(place: Path, name: str, *, listens: bool, age: float) -> tuple[Path, socket.socket]:
    """The folder and socket of another service, made ``age`` seconds ago."""
    path = place / f"causerie-engine-{name}" / "engine.sock"
    path.parent.mkdir()
    there = socket.socket(socket.AF_UNIX)
    there.bind(str(path))
    if listens:
        there.listen(1)
    made = time.time() - age
    os.utime(path, (made, made))
    return path.parent, there


def test_nobody_else_can_enter_and_nothing_is_left(place: Path) -> None:
    ipc_socket = IpcSocket()
    assert ipc_socket.path is not None
    folder = Path(ipc_socket.path).parent
    assert folder.parent == place
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert IpcSocket().path != ipc_socket.path
    ipc_socket.close()
    ipc_socket.close()
    assert not folder.exists()


def test_only_what_nobody_listens_at_is_taken_away(place: Path) -> None:
    dead, one = bound(place, "dead", listens=False, age=100_000)
    alive, two = bound(place, "alive", listens=True, age=100_000)
    loading, three = bound(place, "loading", listens=False, age=3600)
    empty, left = place / "causerie-engine-empty", place / "causerie-engine-left"
    for folder in (empty, left):
        folder.mkdir()
    os.utime(left, (0, 0))
    with one, two, three:
        IpcSocket()
    assert not dead.exists()
    assert alive.exists()
    assert loading.exists()
    assert empty.exists()
    assert not left.exists()


@pytest.mark.parametrize("name", ["n" * 90, "ü" * 45])
def test_a_path_that_no_socket_can_have_is_not_taken(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    deep = place / name
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    assert IpcSocket().path is None
    assert not list(deep.iterdir())


def test_without_a_folder_there_is_no_socket(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(place / "missing"))
    assert IpcSocket().path is None
