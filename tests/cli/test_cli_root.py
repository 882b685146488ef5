"""The list of commands: at hand without what the commands are made of."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from casekit import each_of
from typer.testing import CliRunner

from causerie.cli.root import COMMANDS, app, loaded

LOOKS = {"markdown_it", "pygments", "rich"}  # take longer than all the rest
MODULES = """
import json, sys
from causerie.cli import main
sys.argv = ["causerie", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    print(json.dumps([end.code, sorted(sys.modules)]), file=sys.stderr)
"""


def modules_after(*words: str) -> set[str]:
    """Return what a process has imported when this command line has ended well."""
    command = [sys.executable, "-c", MODULES, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    code, modules = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done.stderr
    return set(modules)


@pytest.mark.parametrize("words", [["--help"], ["--version"]])
def test_the_list_of_commands_imports_none_of_them(words: list[str]) -> None:
    found = modules_after(*words)
    ours = {name for name in found if name.startswith("causerie")}
    assert ours == {"causerie", "causerie.cli", "causerie.cli.root"}
    assert not found & LOOKS
    assert not found & {"asyncio", "jinja2", "llguidance", "msgspec", "sqlalchemy", "structlog"}


def test_help_imports_what_commands_take_and_nothing_that_carries_them_out() -> None:
    explained = """
import sys
from typer.testing import CliRunner
from causerie.cli.root import COMMANDS, app
for words in [*([name] for name in COMMANDS), ["users", "create"]]:
    result = CliRunner().invoke(app, [*words, "--help"])
    assert result.exit_code == 0 and "Usage" in result.output, result.output
print(*sys.modules)
"""
    command = [sys.executable, "-c", explained]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found = set(done.stdout.split())
    commands = {f"causerie.cli.{command.module or name}" for name, command in COMMANDS.items()}
    shared = {"causerie.cli.command"}
    listed = {"causerie", "causerie.cli", "causerie.cli.root"}
    assert {name for name in found if name.startswith("causerie")} == listed | shared | commands
    service = {"httptools", "jinja2", "llguidance", "msgspec", "sqlalchemy", "structlog"}
    assert not found & (service | LOOKS | {"pydantic"})


def test_help_has_every_part_and_fits_the_window() -> None:
    runner = CliRunner(env={"COLUMNS": "60"})
    explained = runner.invoke(app, ["pull", "--help"], color=True).output
    assert "\x1b[1mExamples:\x1b[0m\n  \x1b[1mcauserie pull\x1b[0m fetches the default" in explained
    parts = re.sub(r"\x1b\[\d+m", "", explained).split("\n\n")
    assert parts[0] == "Usage: causerie pull [OPTIONS] [ref]"
    assert [part.split("\n")[0] for part in parts[-3:]] == ["Examples:", "Arguments:", "Options:"]
    assert "`" not in explained
    listed = runner.invoke(app, ["users", "--help"]).output
    assert "  create         Invite somebody: print a link by which they\n" + 17 * " " in listed
    assert max(map(len, listed.splitlines())) <= 60


@each_of("name", COMMANDS)
def test_the_list_has_the_first_sentence_of_each_command(name: str) -> None:
    assert loaded(name).name == name
    first = loaded(name).help.split("\n\n")[0]
    assert COMMANDS[name].summary == " ".join(first.split())


def test_a_word_that_is_no_command_suggests_one() -> None:
    result = CliRunner(env={"TERM": "dumb", "COLUMNS": "100"}).invoke(app, ["sevre"])
    assert result.exit_code == 2
    assert "Did you mean 'serve'" in result.stderr
