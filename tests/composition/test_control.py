"""The socket by which commands reach a running service."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from structlog.testing import capture_logs

from causerie.composition import app
from causerie.composition.control import (
    ControlFailed,
    answering,
    asked,
    chatting,
    is_chatting,
    sockets,
)
from causerie.engines.fleet import Fleet


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short: the name of a socket has some hundred characters at most."""
    with tempfile.TemporaryDirectory(prefix="c") as short:
        yield Path(short) / "run"


async def echo(what: str) -> str:
    if what == "wrong":
        raise ValueError("nobody knows that")
    return what.upper()


async def ask(path: Path, what: str) -> str:
    return await asyncio.to_thread(asked, path, what, str, 5.0)


async def test_what_is_asked_is_answered(folder: Path) -> None:
    async with answering(folder, echo) as path:
        assert path is not None
        [found] = await asyncio.to_thread(sockets, folder)
        assert (found.path, found.pid) == (path, os.getpid())
        answers = await asyncio.gather(*(ask(path, word) for word in ("a", "b", "c")))
        assert answers == ["A", "B", "C"]
    assert not path.exists()


async def test_only_its_user_can_reach_it(folder: Path) -> None:
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    async with answering(folder, echo) as path:
        assert path is not None
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_folder_that_is_none_is_said_and_the_service_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("file", "link", "file/below"):
        with capture_logs() as lines:
            async with answering(tmp_path / name, echo) as path:
                assert path is None
        assert "no socket for `causerie reload`" in lines[0]["event"]


async def test_a_path_too_long_for_a_socket_is_said(tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with answering(tmp_path / ("x" * 120), echo) as path:
            assert path is None
    assert "too long" in lines[0]["why"]


async def test_what_nobody_understands_harms_nobody(folder: Path) -> None:
    async with answering(folder, echo) as path:
        assert path is not None
        for sent in (b"nonsense\n", b"1\n", b'"wrong"\n', b"", b"x" * 200_000):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(sent)
            if sent:
                writer.write_eof()
            else:
                writer.close()
            assert await reader.read() == b""
            writer.close()
        with pytest.raises(ControlFailed, match="could not be asked"):
            await ask(path, "wrong")
        assert await ask(path, "a") == "A"


def test_sockets_that_nobody_listens_at_are_removed(folder: Path) -> None:
    folder.mkdir()
    left = folder / "4711.sock"
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(left))
    (folder / "odd.sock").touch()
    assert sockets(folder) == []
    assert not left.exists()
    with pytest.raises(ControlFailed, match="No such file"):
        asked(left, "a", str, 1.0)


def test_there_may_be_no_folder(tmp_path: Path) -> None:
    assert sockets(tmp_path / "none") == []


async def test_services_in_a_folder_of_another_user_are_not_asked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `su`, XDG_RUNTIME_DIR may still name it: they would get prompts and keys."""
    async with answering(folder, echo):
        assert await asyncio.to_thread(sockets, folder)
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert await asyncio.to_thread(sockets, folder) == []


async def test_a_service_that_does_not_answer_is_not_waited_for(folder: Path) -> None:
    never = asyncio.Event()

    async def silent(_: str) -> str:
        await never.wait()
        return ""

    async with answering(folder, silent) as path:
        assert path is not None
        with pytest.raises(ControlFailed, match=r"not answered within 0\.05 s"):
            await asyncio.to_thread(asked, path, "a", str, 0.05)
        never.set()


@pytest.mark.skipif(sys.platform == "win32", reason="needs sockets with a path")
async def test_a_background_service_ends_after_the_last_chat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, ended = tmp_path / "run", list[int]()
    folder.mkdir()
    monkeypatch.setattr(app, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(app, "_UNUSED_SECONDS", 0.05)
    monkeypatch.setattr(os, "kill", lambda _, signal: ended.append(signal))
    unused = partial(app._stop_when_unused, cast(Fleet, SimpleNamespace(status=list)))
    with chatting(folder), chatting(folder):
        (folder / "1.sock").touch()
        assert is_chatting(folder)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await unused(folder / "1.sock")
    assert not is_chatting(folder)
    async with asyncio.timeout(30):
        await unused(folder / "1.sock")
    assert len(ended) == 1
