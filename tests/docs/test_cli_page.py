"""The page on the command line names every command, and every way to end."""

from __future__ import annotations

import re
from pathlib import Path

import typer
from typer.testing import CliRunner

from causerie.cli.exits import ExitCode
from causerie.cli.root import COMMANDS, app, loaded

PAGE = (Path(__file__).parents[2] / "docs" / "reference/cli.md").read_text(encoding="utf-8")
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


def test_every_flag_on_the_page_exists() -> None:
    commands = [
        each
        for command in LOADED.values()
        for each in (command, *getattr(command, "commands", {}).values())
    ]
    commands.append(typer.main.get_command(app))
    known = {
        flag
        for command in commands
        for parameter in command.params
        for flag in (*parameter.opts, *parameter.secondary_opts)
    }
    examples = "\n".join(line for line in PAGE.splitlines() if line.startswith("    "))
    used = set(re.findall(r"(?<!\S)--[a-z-]+", examples))
    assert used - known <= {"--help"}
