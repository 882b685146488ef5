"""``causerie run`` keeps its model for the next one: the background service."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

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
    modes = {stat.S_IMODE(each.stat().st_mode) for each in (runtime / "causerie").iterdir()}
    assert (modes, stat.S_IMODE(log.stat().st_mode)) == ({0o600}, 0o600)
    os.kill(first.facts.pid, signal.SIGKILL)
    assert ended(first.facts.pid, 30)
    answer(ask())
    second = only_service()
    assert second.facts.pid != first.facts.pid
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
    process = ask(name="./cut.gguf")
    out, err = process.communicate("", timeout=240)
    assert (process.returncode, out) == (1, ""), err
    assert err.startswith("causerie: cut did not load: "), err
