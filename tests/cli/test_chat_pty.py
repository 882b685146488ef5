"""A chat on a pseudo-terminal: lines for the program, and output without colours."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from service import serving

CONFIG = """[[models]]
id = "a"
engine = "fake"
options = { replies = ["# Title\\n\\n`code` and **bold**\\n\\n- one", "Second."] }
"""
COMMAND = (sys.executable, "-c", "from causerie.cli import main; main()")
STYLE = re.compile(rb"\x1b\[[0-9;]*m")


@pytest.fixture
def base_url(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="c") as short:  # paths of sockets are short
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        with serving(tmp_path, CONFIG) as service:
            yield service.base_url


def awaited(master: int, text: bytes, seconds: float = 60) -> bytes:
    """What the terminal shows, up to this text and the next prompt."""
    wanted = re.compile(re.escape(text) + rb"[\s\S]*> ")
    seen, deadline = b"", time.monotonic() + seconds
    while not wanted.search(seen):
        ready, _, _ = select.select([master], [], [], max(deadline - time.monotonic(), 0))
        assert ready, seen
        seen += os.read(master, 65536)
    return seen


def test_lines_for_the_program_and_no_colours(base_url: str) -> None:
    master, slave = pty.openpty()
    words = (*COMMAND, "chat", "-u", base_url)
    environ = {**os.environ, "NO_COLOR": "1", "TERM": "xterm-256color"}
    process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, env=environ)
    os.close(slave)
    try:
        shown = awaited(master, b"/help lists more")
        for line, answer in (
            (b"/set temperature 0.2", b"temperature is 0.2"),
            (b"/retry", b"there is no question"),
            (b"Hello", b"- one"),
            (b"/retry", b"Second."),
            (b"/undo", b"is forgotten"),
            (b"/undo", b"nothing to forget"),
        ):
            os.write(master, line + b"\n")
            shown += awaited(master, answer)
        os.write(master, b"/bye\n")
        assert process.wait(60) == 0
        assert not STYLE.findall(shown)
    finally:
        process.kill()
        process.wait()
        os.close(master)
