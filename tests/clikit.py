"""Commands on people, projects and keys, run on a database of their own."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from causerie.cli.root import app


@dataclass(frozen=True)
class Terminal:
    """A terminal for commands; their database is in ``folder``."""

    folder: Path

    def run(self, *words: str, stdin: str | None = None) -> Result:
        """Run a command and return its result."""
        store = ["--set", f"store.folder={self.folder}"]
        env = {"TERM": "dumb", "COLUMNS": "40"}
        return CliRunner(env=env).invoke(app, [*words, *store], input=stdin)

    def done(self, *words: str, stdin: str | None = None) -> str:
        """Return the output of a command that succeeded."""
        result = self.run(*words, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *words: str, stdin: str | None = None) -> Any:
        """The same, as JSON."""
        return json.loads(self.done(*words, "--json", stdin=stdin))


@pytest.fixture
def terminal(tmp_path: Path, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A database with all tables and nobody in them."""
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(sqlite_template, tmp_path / "causerie.db")
    return Terminal(tmp_path)
