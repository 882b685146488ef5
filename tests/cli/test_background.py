"""``causerie run`` keeps its model for the next one: the background service."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest
from filelock import FileLock

from causerie.cli import background
from causerie.cli.command import CommandFailed
from causerie.cli.services import Service, services

COMMAND = (sys.executable, "-m", "causerie")
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(sys.platform == "win32", reason="needs sockets with a path"),
]


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_gguf: Path) -> Iterator[Path]:
    """Folders of a user of their own, with a small model as ``x.gguf``; nothing stays there."""
    with tempfile.TemporaryDirectory(prefix="c") as short:  # paths of sockets are short
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        for name in ("CACHE", "CONFIG", "STATE"):
            monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
        monkeypatch.setenv("GOMP_SPINCOUNT", "1000")
        monkeypatch.chdir(tmp_path)
        shutil.copyfile(tiny_gguf, tmp_path / "x.gguf")
        try:
            yield tmp_path
        finally:
            for service in services():
                service.end()


def ask(question: str = "Say hello.", name: str = "./x.gguf") -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    words = (*COMMAND, "run", name, question)
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def answer(process: subprocess.Popen[str]) -> None:
    _, err = process.communicate("", timeout=240)
    assert process.returncode == 0, err


def ended(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while Path(f"/proc/{pid}/stat").exists() and time.monotonic() < deadline:
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.1)  # another process: there is nothing to await but its end
    return not Path(f"/proc/{pid}/stat").exists()


def only_service() -> Service:
    [service] = services()
    return service


def test_the_model_stays_for_the_next_question(home: Path) -> None:
    """Two that start at once share one service, and each finds the same later."""
    both = [ask(), ask()]
    for each in both:
        answer(each)
    first = only_service()
    assert (first.facts.background, first.facts.models[0].id) == (True, "x")
    answer(ask())
    assert only_service().facts.pid == first.facts.pid
    runtime, log = Path(os.environ["XDG_RUNTIME_DIR"]), home / "state/causerie/background.log"
    [key] = (runtime / "causerie").glob("*.key")
    listed = f"{first.base_url}/models"
    with pytest.raises(HTTPError, match="401"):  # as another user asks
        urllib.request.urlopen(listed)
    with_key = urllib.request.Request(listed, headers={"x-api-key": key.read_text()})
    assert urllib.request.urlopen(with_key).status == 200
    modes = {stat.S_IMODE(each.stat().st_mode) for each in (runtime / "causerie").iterdir()}
    assert (modes, stat.S_IMODE(log.stat().st_mode)) == ({0o600}, 0o600)
    os.kill(first.facts.pid, signal.SIGKILL)
    assert ended(first.facts.pid, 30)
    answer(ask())
    second = only_service()
    assert second.facts.pid != first.facts.pid
    assert not key.exists()
    shutil.rmtree(runtime / "causerie")
    assert ended(second.facts.pid, 60), "nobody can find it any more"


def test_one_of_another_version_is_replaced(home: Path) -> None:
    answer(ask())
    before = only_service()
    old = "import causerie; causerie.__version__ = '0.0.1'; from causerie.cli import main; main()"
    words = (sys.executable, "-c", old, "run", "./x.gguf", "Say hello.")
    subprocess.run(words, stdin=subprocess.DEVNULL, check=True)
    assert only_service().facts.pid != before.facts.pid
    assert ended(before.facts.pid, 30)


def test_it_ends_by_itself(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAUSERIE_ENGINES_KEEP_ALIVE_SECONDS", "0.5")
    answer(ask())
    assert ended(only_service().facts.pid, 60)
    assert services() == []


def test_nothing_stays_where_the_setting_is_zero(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAUSERIE_ENGINES_KEEP_ALIVE_SECONDS", "0")
    answer(ask())
    assert services() == []


def test_a_model_that_does_not_load_is_told(home: Path) -> None:
    whole = (home / "x.gguf").read_bytes()
    (home / "cut.gguf").write_bytes(whole[: len(whole) // 2])
    assert b"output_norm" in whole
    (home / "lacks.gguf").write_bytes(whole.replace(b"output_norm", b"output_worm"))
    for name, code, told in (
        ("cut", 4, f"{home}/cut.gguf is not a usable GGUF file: it ends at byte "),
        ("lacks", 1, "lacks did not load: the engine could not load "),
    ):
        process = ask(name=f"./{name}.gguf")
        out, err = process.communicate("", timeout=240)
        assert (process.returncode, out) == (code, ""), err
        assert err.startswith(f"causerie: {told}"), err


def test_an_open_chat_starts_an_ended_service_anew(home: Path) -> None:
    def awaited(text: bytes) -> bytes:
        seen, wanted = b"", re.compile(re.escape(text) + rb"[\s\S]*> ")
        while not wanted.search(seen):
            ready, _, _ = select.select([master], [], [], 240)
            assert ready, seen
            seen += os.read(master, 65536)
        return seen

    master, slave = pty.openpty()
    words = (*COMMAND, "run", "./x.gguf", "--plain")
    process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    try:
        awaited(b"lists more")
        os.write(master, b"/set max_tokens 8\n")
        awaited(b"max_tokens is 8")
        os.write(master, b"Say hello.\n")
        awaited(b"tokens/s")
        first = only_service()
        os.kill(first.facts.pid, signal.SIGKILL)
        assert ended(first.facts.pid, 30)
        os.write(master, b"And again.\n")
        assert b"the service has ended, so it is started anew" in awaited(b"tokens/s")
        assert only_service().facts.pid != first.facts.pid
        os.write(master, b"/bye\n")
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(master)


def test_a_start_that_another_command_holds_up_is_told(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_LOCK_SECONDS", 0.01)
    path = home / "background.lock"
    refused = pytest.raises(CommandFailed, match=f"another .* holds {path}")
    with FileLock(path), refused, background._lock_service_start(path):
        pass
