"""The page on the command line names every command, and every way to end."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest
from typer.exceptions import TyperException
from typer.testing import CliRunner

from causerie.cli.command import ExitCode
from causerie.cli.root import COMMANDS, app, loaded

ROOT = Path(__file__).parents[2]
ARGUMENT = re.compile(r"[A-Z_]+|\[[A-Z_]+\]")
PAGE = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
LINE = re.compile(
    r"`causerie ([a-z][^`\n]*)`|^ {4}(?:\$ |[A-Z_]+=\S+ |[^#\n]*\| )*causerie ([a-z].*)$",
    re.MULTILINE,
)
LOADED = {name: loaded(name) for name in COMMANDS}
GROUPS = {name: sorted(one.commands) for name, one in LOADED.items() if hasattr(one, "commands")}
PLAIN = [name for name in LOADED if name not in GROUPS]
WHOLE = [*([name] for name in PLAIN), *([name, sub] for name in GROUPS for sub in GROUPS[name])]


def test_every_command_is_on_the_page() -> None:
    overview = PAGE.split("\n\n")[1]
    assert sorted(re.findall(r"^ +causerie (\w+)", overview, re.MULTILINE)) == sorted(COMMANDS)


def test_every_exit_code_is_on_the_page() -> None:
    codes = [int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)]
    assert codes == [code.value for code in ExitCode]


def test_every_command_explains_itself_with_an_example() -> None:
    for command in WHOLE:
        result = CliRunner(env={"TERM": "dumb", "COLUMNS": "100"}).invoke(app, [*command, "--help"])
        assert result.exit_code == 0
        words = " ".join(["causerie", *command])
        assert words in result.stdout.split("Usage", 1)[1].split("\n", 1)[1]


def test_every_command_of_a_group_is_on_the_page() -> None:
    for name, commands in GROUPS.items():
        for command in commands:
            shown = f"causerie {name} {command}" in PAGE
            assert shown or re.search(rf"causerie {name} .*# and .*\b{command}\b", PAGE), command


def test_the_overview_names_the_arguments_of_each_command() -> None:
    for line in PAGE.split("\n\n")[1].splitlines():
        _, name, *words = line.split()
        command = LOADED[name]
        arguments = [one for one in command.params if one.param_type_name == "argument"]
        shown = [one.name.upper() if one.required else f"[{one.name.upper()}]" for one in arguments]
        assert list(takewhile(ARGUMENT.fullmatch, words)) == shown, line


def test_every_command_line_of_the_documentation_is_one() -> None:
    lines = list(written())
    assert len(lines) > 100
    for page, line in lines:
        name, *arguments = shlex.split(re.split(r"\s#|\s[|>&<]|\s2>|;", line)[0])
        command = LOADED[name]
        if name in GROUPS and arguments:
            command = command.commands[arguments.pop(0)]
        if name in GROUPS and command is LOADED[name]:
            continue
        try:
            command.make_context(name, arguments)
        except TyperException as error:
            in_sentence = f"`causerie {line}`" in page.read_text(encoding="utf-8")
            if not (in_sentence and str(error).startswith("Missing parameter")):
                pytest.fail(f"{page.name}: causerie {line}: {error}")


def written() -> Iterator[tuple[Path, str]]:
    """Yield the command lines of all pages but the overview, without the word `causerie`."""
    pages = [ROOT / "README.md", *ROOT.glob("docs/[srg]*/*.md"), *ROOT.glob("examples/**/*.md")]
    for page in pages:
        text = page.read_text(encoding="utf-8").replace(PAGE.split("\n\n")[1], "")
        for found in LINE.finditer(text):
            yield page, found[1] or found[2]
