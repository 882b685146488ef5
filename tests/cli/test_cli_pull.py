"""``causerie pull`` and ``causerie models``, run as people run them, against a local hub."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import commandkit
import pytest
from hub import TOKEN, Hub, gguf, serving

MODEL = gguf(padding=3_000_000)
CONTAINER = ["unshare", "--pid", "--fork", "--kill-child"]
CONTAINED = shutil.which("unshare") and not subprocess.call(
    [*CONTAINER, "true"], stderr=subprocess.DEVNULL
)


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    async with serving() as running:
        running.repositories["org/repo"] = {"m-Q4_K_M.gguf": MODEL}
        yield running


class Shell:
    """Runs the command in a folder of its own, with a cache of its own."""

    def __init__(self, folder: Path, hub: Hub) -> None:
        self._folder = folder
        self._environ = {"HF_ENDPOINT": hub.url, "XDG_CACHE_HOME": str(folder / "cache")}

    async def start(self, *arguments: str, within: Sequence[str] = (), **environ: str) -> Process:
        return await asyncio.create_subprocess_exec(
            *within, sys.executable, "-c", "from causerie.cli import main; main()", *arguments,
            stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=self._folder,
            env={**os.environ, **self._environ, **environ},
        )  # fmt: skip

    async def run(self, *arguments: str, **environ: str) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        return await commandkit.run(*arguments, folder=self._folder, **self._environ | environ)


@pytest.fixture
def shell(tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Shell:
    for name in [each for each in os.environ if each.startswith("HF_")]:
        monkeypatch.delenv(name)
    return Shell(tmp_path, hub)


async def test_the_path_is_on_stdout_and_the_progress_on_stderr(shell: Shell, hub: Hub) -> None:
    code, out, err = await shell.run("pull", "hf:org/repo")
    assert code == 0, err
    assert Path(out.rstrip("\n")).read_bytes() == MODEL
    assert "Fetching" in err
    assert "(3 MB)" in err
    again = await shell.run("pull", "hf:org/repo", "--quiet")
    assert again == (0, out, "")
    assert hub.downloads() == 1


async def test_what_is_here_is_listed(shell: Shell, tmp_path: Path) -> None:
    text = '[[models]]\nid = "small"\nref = "hf:org/repo"\n[[models]]\nid = "x"\nengine = "fake"\n'
    text += f'[[models]]\nid = "long-{"g" * 100}"\nref = "hf:org/{"r" * 90}:Q4_K_M"\n'
    (tmp_path / "causerie.toml").write_text(text, encoding="utf-8")
    _, before, _ = await shell.run("models")
    _, path, _ = await shell.run("pull", "hf:org/repo")
    _, after, _ = await shell.run("models")
    assert before.splitlines()[1].split() == ["small", "hf:org/repo", "llamacpp", "not", "fetched"]
    assert after.splitlines()[1].split() == ["small", "hf:org/repo", "llamacpp", "3", "MB"]
    assert after.splitlines()[2].split() == ["x", "-", "fake", "-"]
    assert after.splitlines()[3].split() == [
        f"long-{'g' * 100}", f"hf:org/{'r' * 90}:Q4_K_M", "llamacpp", "not", "fetched"
    ]  # fmt: skip
    (tmp_path / "causerie.toml").unlink()
    _, rows, _ = await shell.run("models", "--json")
    default, kept = json.loads(rows)
    assert (default["id"], default["bytes"]) == ("smollm2-135m", None)
    assert kept == {
        "id": None,
        "ref": "hf:org/repo",
        "engine": None,
        "bytes": len(MODEL),
        "path": path.rstrip("\n"),
    }


OWN = """\
[tiny]
license = "MIT"
[tiny.tags]
3m = { ref = "hf:org/repo", size = 3_000_000, context = 2048 }
"""


async def test_a_short_name_is_pulled_and_listed(shell: Shell, tmp_path: Path) -> None:
    own = tmp_path / "config" / "causerie" / "library.toml"
    own.parent.mkdir(parents=True)
    own.write_text(OWN, encoding="utf-8")
    names = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    code, path, err = await shell.run("pull", "tiny", "-q", **names)
    assert code == 0, err
    assert Path(path.rstrip("\n")).read_bytes() == MODEL
    _, out, _ = await shell.run("list", **names)
    assert out.splitlines()[1].split() == ["tiny:3m", "3", "MB", "Q4_K_M", "just", "now"]
    _, rows, _ = await shell.run("list", "--json")
    (row,) = json.loads(rows)
    assert (row["name"], row["bytes"], row["path"]) == (
        "hf:org/repo",
        len(MODEL),
        path.rstrip("\n"),
    )
    _, out, _ = await shell.run("list", "--library", **names)
    assert ["tiny:3m", "3", "MB", "2,048", "MIT", "hf:org/repo"] in [
        line.split() for line in out.splitlines()
    ]
    own.write_text("[", encoding="utf-8")
    code, _, err = await shell.run("pull", "tiny", **names)
    assert (code, err.startswith(f"causerie: {own} is not a usable library")) == (3, True)


async def test_an_unknown_name_suggests_the_right_one(shell: Shell) -> None:
    code, out, err = await shell.run("pull", "smolm2")
    assert (code, out) == (2, "")
    assert "did you mean smollm2 or " in err


async def test_failures_are_one_sentence_with_a_code(shell: Shell, hub: Hub) -> None:
    for arguments, code in (
        (("pull", "hf:org/none"), 4),
        (("pull", "hf:org/repo:Q8_0"), 4),
        (("pull", "./none.gguf"), 4),
        (("pull", "nonsense:x"), 2),
        (("pull", "hf:org/repo", "--set", "weights.offline=true"), 4),
        (("pull", "--config", "none.toml"), 3),
    ):
        found, out, err = await shell.run(*arguments)
        assert (found, out) == (code, ""), err
        assert err.startswith("causerie: ")
        assert err.count("\n") == 1


async def test_a_gated_repository_wants_the_token(shell: Shell, hub: Hub) -> None:
    hub.behaviour.gated = True
    code, _, err = await shell.run("pull", "hf:org/repo")
    assert code == 4
    assert "HF_TOKEN" in err
    code, _, err = await shell.run("pull", "hf:org/repo", HF_TOKEN=TOKEN)
    assert code == 0, err
    assert TOKEN not in err


@pytest.mark.full
async def test_an_interrupt_waits_for_no_hub(shell: Shell, hub: Hub) -> None:
    hub.behaviour.silent = True
    process = await shell.start("pull", "hf:org/repo")
    await hub.sending.wait()
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(45):  # fewer seconds than the hub is given
        assert await process.communicate() == (b"", b"")
    assert process.returncode == 130


@pytest.mark.full
@pytest.mark.skipif(not CONTAINED, reason="needs leave to make a namespace of processes")
async def test_the_first_process_of_a_container_can_be_ended(shell: Shell, hub: Hub) -> None:
    hub.behaviour.silent = True
    container = await shell.start("pull", "hf:org/repo", within=CONTAINER)
    await hub.sending.wait()
    first = Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text()
    os.kill(int(first), signal.SIGTERM)
    async with asyncio.timeout(45):
        await container.communicate()
    assert container.returncode == 128 + signal.SIGTERM


async def test_an_interrupt_is_code_130_and_the_next_try_succeeds(shell: Shell, hub: Hub) -> None:
    hub.behaviour.held = 2_000_000
    process = await shell.start("pull", "hf:org/repo", "-q")
    await hub.sending.wait()
    process.send_signal(signal.SIGINT)
    await process.communicate()
    assert process.returncode == 130
    hub.behaviour.held = None
    code, out, err = await shell.run("pull", "hf:org/repo", "-q")
    assert code == 0, err
    assert Path(out.rstrip("\n")).read_bytes() == MODEL
