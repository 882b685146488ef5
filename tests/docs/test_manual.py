"""The man page: what the commands say of themselves, in roff without mistakes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from manual import manual

from causerie.cli.root import COMMANDS, loaded

FILE = Path(__file__).parents[2] / "src/causerie/cli/causerie.1"


def test_the_page_is_that_of_the_commands() -> None:
    assert FILE.read_text(encoding="utf-8") == manual(), "run `make docs`"


def test_every_command_and_option_is_in_it() -> None:
    page = manual().replace("\\-", "-")
    for name in COMMANDS:
        commands = getattr(loaded(name), "commands", {"": loaded(name)})
        for sub, command in commands.items():
            section = page.split(f".SS \\fB{' '.join(['causerie', name, sub]).strip()}\\fR", 1)[1]
            section = section.split("\n.S", 1)[0]
            for option in (opt for one in command.params for opt in one.opts if "-" in opt):
                assert option in section, (name, sub, option)


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff reads man pages; it is not here")
def test_a_reader_of_man_pages_has_no_complaint() -> None:
    command = ["groff", "-man", "-ww", "-Tutf8", str(FILE)]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stderr == b""
    assert b"CAUSERIE(1)" in done.stdout
