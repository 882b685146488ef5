"""``causerie ps``, ``stop`` and ``rm`` against services in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub import gguf
from service import serving
from typer.testing import CliRunner, Result

from causerie.cli.root import app
from causerie.cli.services import resident
from causerie.engines.weights.cache import Cache, StoredFile
from causerie.engines.weights.reference import Reference

FAKE = '[[models]]\nid = "{}"\nengine = "fake"\n'
KEPT = '[[models]]\nid = "kept"\nref = "hf:org/repo"\npreload = false\n'
NOBODY = "causerie: no service of this user is running\n"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Folders of a user of their own; returns the one of the cache."""
    with tempfile.TemporaryDirectory(prefix="c") as short:  # paths of sockets are short
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        monkeypatch.chdir(tmp_path)
        yield tmp_path / "cache" / "causerie"


def run(*words: str, stdin: str | None = None) -> Result:
    return CliRunner(env={"TERM": "dumb", "COLUMNS": "40"}).invoke(app, [*words], input=stdin)


def test_nothing_runs() -> None:
    assert run("ps").stdout.split("\n", 1)[1] == ""
    assert json.loads(run("ps", "--json").stdout) == []
    result = run("stop")
    assert (result.exit_code, result.stderr) == (1, NOBODY)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="read from /proc")
def test_memory_of_a_process() -> None:
    assert (resident(os.getpid()) or 0) > 10_000_000
    assert resident(None) is None
    shell = subprocess.Popen(
        ["sh", "-c", "cat; :"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    with shell:
        assert shell.stdin is not None
        assert shell.stdout is not None
        shell.stdin.write(b"\n")
        assert shell.stdout.read(1)  # so `cat` runs below the shell
        own = int(Path(f"/proc/{shell.pid}/statm").read_text().split()[1])
        assert (resident(shell.pid) or 0) > own * os.sysconf("SC_PAGE_SIZE")
        shell.stdin.close()


def test_a_service_is_shown_and_stopped(tmp_path: Path) -> None:
    with serving(tmp_path, FAKE.format("a") + KEPT) as service:
        header, first, second = run("ps").stdout.splitlines()
        address, pid = service.root.removeprefix("http://"), str(service.process.pid)
        assert header.split()[0] == "MODEL"
        assert first.split() == ["a", "-", "absent", "-", "-", "-", "-", "-", address, pid]
        kept = ["kept", "hf:org/repo", "absent", "-", "-", "-", "-", "-", address, pid]
        assert second.split() == kept
        (facts,) = json.loads(run("ps", "--json").stdout)
        assert (facts["pid"], facts["models"][1]["ref"]) == (service.process.pid, "hf:org/repo")
        result = run("stop", "b")
        assert result.exit_code == 2
        assert (
            f"no running service has the model b; there are:\n  --pid {pid}  {address}"
            in result.stderr
        )
        result = run("stop", "hf:org/repo")
        told = f"kept was not loaded; {address} goes on.\n"
        assert (result.exit_code, result.stdout) == (0, told), result.stderr
        assert service.process.poll() is None
        result = run("stop", "--pid", pid)
        assert (result.exit_code, result.stdout) == (0, f"Stopped {address}.\n"), result.stderr
        assert service.process.wait(60) == 0
    assert run("stop").stderr == NOBODY


def test_several_services_are_told_apart_by_their_models(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    with (
        serving(folders[0], FAKE.format("a")) as first,
        serving(folders[1], FAKE.format("b")) as second,
    ):
        rows = {row[0]: row[1:] for row in map(str.split, run("ps").stdout.splitlines())}
        for name, service in (("a", first), ("b", second)):
            where = [service.root.removeprefix("http://"), str(service.process.pid)]
            assert rows[name] == ["-", "ready", "8,192", "0/16", "-", "-", "-", *where]
        result = run("stop")
        assert result.exit_code == 2
        assert "several services are running; say which:\n" in result.stderr
        assert run("stop", "b").exit_code == 0
        assert second.process.wait(60) == 0
        assert first.process.poll() is None


def test_a_service_that_was_killed_is_not_shown(tmp_path: Path, home: Path) -> None:
    with serving(tmp_path, FAKE.format("a")) as service:
        service.process.send_signal(signal.SIGKILL)
        service.process.wait(60)
        assert len(run("ps").stdout.splitlines()) == 1


def stored(cache: Cache, ref: str, name: str = "m-Q4_K_M.gguf") -> Path:
    """A small file in the cache, as a fetch leaves it."""
    reference = Reference.parse(ref)
    path = cache.place(reference, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gguf(padding=3_000_000))
    cache.keep(reference, [StoredFile(path, "0" * 64)])
    return path


def test_weights_are_removed_after_a_question(home: Path) -> None:
    file, other = stored(Cache(home), "hf:org/repo"), stored(Cache(home), "hf:org/other")
    stored(Cache(home), "hf:org/repo:Q4_K_M")
    result = run("rm", "hf:org/repo")
    assert "nothing was done; --yes goes on without a question" in result.stderr
    result = run("rm", "hf:org/repo", stdin="n\n")
    assert result.exit_code == 1
    assert "Delete hf:org/repo (3 MB)?" in result.output
    assert file.exists()
    result = run("rm", "hf:org/repo", stdin="y\n")
    assert (result.exit_code, result.stdout.endswith("Deleted hf:org/repo: 3 MB.\n")) == (0, True)
    assert not file.parent.exists()
    assert [json.loads(run("list", "--json").stdout)[0]["ref"]] == ["hf:org/other"]
    assert other.exists()
    assert len(list((home / "references").iterdir())) == 1


def test_a_folder_is_removed_with_everything_in_it(home: Path) -> None:
    reference, cache = Reference.parse("hf:org/repo"), Cache(home, "folder")
    file, kept = stored(cache, "hf:org/repo", "config.json"), stored(Cache(home), "hf:org/none")
    assert cache.find(reference) is not None
    assert run("rm", "hf:org/repo", "-y").exit_code == 0
    assert not file.parent.exists()
    assert kept.exists()


def test_what_is_not_there_or_in_use_is_not_removed(home: Path, tmp_path: Path) -> None:
    file = stored(Cache(home), "hf:org/repo")
    result = run("rm", "qwen3", "-y")
    assert result.exit_code == 2
    assert result.stderr == "causerie: qwen3 is not in the cache, which holds hf:org/repo\n"
    with serving(tmp_path, FAKE.format("a") + KEPT) as service:
        result = run("rm", "hf:org/repo", "-y")
        assert result.exit_code == 1
        assert f"hf:org/repo is served by {service.root.removeprefix('http://')}" in result.stderr
    assert file.exists()
