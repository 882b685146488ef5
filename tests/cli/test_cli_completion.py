"""Completion by the shells: what each of them is told, in a process as they start it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

PROGRAM = "import sys; sys.argv[0] = 'causerie'; from causerie.cli import main; main()"


def told(*arguments: str, **variables: str) -> str:
    """Return what the program prints when a shell asks it."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize(
    ("words", "last", "offered"),
    [
        ("causerie ser", 1, ["serve", "service"]),
        ("causerie users dis", 2, ["disable"]),
        ("causerie serve --cont", 2, ["--context"]),
        ("causerie init --kind ", 3, ["model", "gateway", "team"]),
    ],
)
def test_bash_is_told_commands_options_and_values(
    words: str, last: int, offered: list[str]
) -> None:
    asked = {"_CAUSERIE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(last)}
    assert told(**asked).split() == offered


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_told_the_summary_too(shell: str) -> None:
    asked = {"_CAUSERIE_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": "causerie ser"}
    answer = told(**asked, _TYPER_COMPLETE_FISH_ACTION="get-args")
    assert "serve" in answer
    assert "Serve models" in answer


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_can_be_shown(shell: str) -> None:
    script = told(_CAUSERIE_COMPLETE=f"source_{shell}")
    assert f"complete_{shell}" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)
