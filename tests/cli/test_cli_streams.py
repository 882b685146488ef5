"""Streams of a command that are closed, or that nothing can be written to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from casekit import first_of

_CAUSERIE = (sys.executable, "-m", "causerie")
_FULL = Path("/dev/full")


@pytest.mark.skipif(not _FULL.exists(), reason="no device that is always full")
@pytest.mark.parametrize("command", first_of(["key", "models", "check"]))
def test_a_full_disk_is_one_sentence(command: str, tmp_path: Path) -> None:
    with _FULL.open("w") as full:
        done = subprocess.run(
            [*_CAUSERIE, command], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    said = done.stderr.decode()
    assert said == "causerie: the output cannot be written: No space left on device\n"


@pytest.mark.skipif(sys.platform == "win32", reason="a shell closes it")
@pytest.mark.parametrize("closed", first_of([">&-", "<&-", "<&- >&-"]))
def test_a_service_needs_no_streams(closed: str, tmp_path: Path) -> None:
    config = tmp_path / "causerie.toml"
    config.write_text('[[models]]\nid = "m"\nengine = "fake"\n', encoding="utf-8")
    command = (*_CAUSERIE, "serve", "--port", "0", "--config", str(config))
    with subprocess.Popen(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *command],
        stderr=subprocess.PIPE,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    ) as process:
        try:
            assert process.stderr is not None
            assert any(b'"event":"ready"' in line for line in process.stderr)
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()


_TALKATIVE = """
import sys
from causerie.observe.logging import heedless
with heedless():
    for _ in range(100):
        sys.stderr.write(("x" * int(sys.argv[1]) + "\\n") * 100)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="its pipes cannot be asked for room")
@pytest.mark.parametrize("length", [100, 10_000])
def test_a_service_waits_for_nobody_who_has_stopped_reading(length: int) -> None:
    """A log collector that hangs, a pager, Ctrl-S in a terminal: lines are lost."""
    command = (sys.executable, "-c", _TALKATIVE, str(length))
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            assert process.wait(60) == 0
            assert process.stderr is not None
            lines = process.stderr.read().split(b"\n")
        finally:
            process.kill()
    assert len(lines) > 5
    assert set(lines[:-1]) == {b"x" * length}
