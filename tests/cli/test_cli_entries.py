"""``causerie export`` and ``causerie import FILE``: entries of the database as a file."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
from clikit import Terminal

from causerie.accounts.entry import EntryDraft
from causerie.accounts.people import SYSTEM
from causerie.composition.account_backend import entries_of
from causerie.settings import StoreSettings

SECRET = "sk-a-key-that-no-file-holds"
CONFIG = """
[[doors]]
name = "hosted"
kind = "hosted"
[[models]]
id = "own"
engine = "fake"
[[providers]]
name = "filed"
base_url = "http://127.0.0.1:9/v1"
"""
HERE = "http://127.0.0.1:8/v1"
DRAFTS = (
    EntryDraft("provider", "north", {"base_url": HERE, "max_concurrent": None}, SECRET),
    EntryDraft("provider", "south-2", {"known": "ollama", "timeouts": {"total": 9.5}}),
    EntryDraft("provider", "away", {"base_url": HERE}, SECRET, enabled=False),
    EntryDraft("provider", "filed", {"base_url": HERE}),
    EntryDraft(
        "alias",
        "talk",
        {
            "targets": [{"provider": name, "model": "m"} for name in ("north", "away")],
            "price": {"prompt": "0.15"},
            "limits": {"concurrent": 4},
            "description": 'with "quotes"\nand lines',
        },
    ),
    EntryDraft("alias", "gone", {"targets": [{"provider": "nobody", "model": "m"}]}),
)


@pytest.fixture
def folder(terminal: Terminal) -> Path:
    """The working directory, with a configuration."""
    (terminal.folder / "causerie.toml").write_text(CONFIG)
    return terminal.folder


def keep(folder: Path, drafts: Sequence[EntryDraft]) -> None:
    """Keep entries, as operators do."""

    async def work() -> None:
        store = StoreSettings(url=f"sqlite:///{folder}/causerie.db", folder=str(folder))
        async with entries_of(store) as entries:
            for draft in drafts:
                await entries.add(SYSTEM, entries.drafted(SYSTEM, draft))

    asyncio.run(work())


def test_what_is_exported_is_in_the_form_of_the_file(folder: Path, terminal: Terminal) -> None:
    keep(folder, DRAFTS)
    text = terminal.done("export")
    assert SECRET not in text
    found = tomllib.loads(text)
    assert found["providers"] == [
        {"name": "north", "base_url": HERE, "key": {"env": "NORTH_API_KEY"}},
        {"name": "south-2", "known": "ollama", "timeouts": {"total": 9.5}},
    ]
    [alias] = found["aliases"]
    assert alias["description"] == 'with "quotes"\nand lines'
    assert alias["targets"] == [{"provider": "north", "model": "m"}]
    assert 'key = { env = "NORTH_API_KEY" }  # the key itself stays in the database\n' in text
    assert '# Not in force: switched off\n# [[providers]]\n# name = "away"\n' in text
    assert '# Not in force: "filed" is taken by' in text
    assert '# Not in force: targets[0].provider: no provider is named "nobody"' in text
    terminal.done("export", "entries.toml")
    assert (folder / "entries.toml").read_text() == text
    assert terminal.run("export", "entries.toml").exit_code == 2, "no file is written over"


def test_a_service_without_accounts_has_nothing_to_export(terminal: Terminal) -> None:
    result = terminal.run("export")
    assert (result.exit_code, result.stdout) == (3, "")
    assert 'keys = "accounts"' in result.stderr
