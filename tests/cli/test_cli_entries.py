"""``causerie export`` and ``causerie import FILE``: entries of the database as a file."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
from clikit import Terminal

from causerie.composition.account_backend import entries_of
from causerie.hosted.accounts.operating import EntryChange
from causerie.hosted.accounts.people import SYSTEM
from causerie.hosted.accounts.records import EntryDraft
from causerie.settings.store import StoreSettings

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
SIGNS = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
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

LISTED = {"endpoints": [{"model": "own", "price": {"prompt": "1"}}], "created": "2026-01-02"}
OTHERS = (
    EntryDraft("catalog_model", "us/own", LISTED),
    EntryDraft("model", "own", {"price": {"prompt": "3"}, "queue": {"max_waiting": 1}}),
    EntryDraft("door", "hosted", {"limits": {"concurrent": 5}}),
    EntryDraft("door", "more", {"kind": "router", "keys": "accounts"}),
    EntryDraft("webhook", "pager", {"url": "https://x.example/h", "kinds": ["job"]}, SIGNS),
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
                await entries.write(SYSTEM, [EntryChange(None, entries.drafted(SYSTEM, draft))])

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


def test_the_round_trip_is_exact(
    folder: Path, terminal: Terminal, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(folder, [each for each in DRAFTS if each.name in ("north", "south-2")])
    target = {"provider": "north", "model": "m", "weight": 0.5}
    keep(folder, [EntryDraft("alias", f"a{n}", {"targets": [target]}) for n in (3, 1, 2)])
    keep(folder, OTHERS)
    text = terminal.done("export", "entries.toml") or (folder / "entries.toml").read_text()
    other = Terminal(folder / "other")
    other.folder.mkdir()
    shutil.copyfile(sqlite_template, other.folder / "causerie.db")
    assert other.run("import", "entries.toml", "--yes").exit_code == 3, "the key is missing"
    monkeypatch.setenv("NORTH_API_KEY", SECRET)
    monkeypatch.setenv("PAGER_WEBHOOK_SECRET", "whsec_AAEC")
    assert "has 3 bytes" in other.run("import", "entries.toml", "--yes").stderr
    monkeypatch.setenv("PAGER_WEBHOOK_SECRET", SIGNS)
    assert other.run("import", "entries.toml", stdin="n\n").exit_code == 1
    assert "a1" not in other.done("export"), "nobody has agreed"
    result = other.run("import", "entries.toml", stdin="y\n")
    assert (result.exit_code, result.stderr) == (0, "10 entries written.\n"), result.output
    assert other.done("export") == text
    monkeypatch.delenv("NORTH_API_KEY")
    result = other.run("import", "entries.toml")
    assert result.stderr == "Nothing to write.\n"
    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == ["same"] * 10
    with sqlite3.connect(other.folder / "causerie.db") as database:
        audit = database.execute("select action, subject from audit").fetchall()
    assert sorted(subject for action, subject in audit if action == "configuration.create") == [
        "alias:a1", "alias:a2", "alias:a3", "catalog_model:us/own", "door:hosted", "door:more",
        "model:own", "provider:north", "provider:south-2", "webhook:pager",
    ]  # fmt: skip


def test_an_import_shows_what_it_changes(
    folder: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(folder, [*DRAFTS[:3], DRAFTS[4]])
    (folder / "entries.toml").write_text(
        f"""
[server]
port = 1
[[providers]]
name = "north"
base_url = "{HERE}"
max_concurrent = 3
key = {{ env = "UNSET" }}
[[providers]]
name = "away"
base_url = "{HERE}"
key = {{ env = "SET" }}
[[providers]]
known = "openai"
[[providers]]
name = "filed"
base_url = "http://127.0.0.1:1/v1"
"""
    )
    monkeypatch.setenv("SET", "another-key")
    result = terminal.run("import", "entries.toml", "--yes")
    assert result.exit_code == 0, result.output
    assert "`server` is not imported" in result.stderr
    rows = [" ".join(line.split()) for line in result.stdout.splitlines()[1:]]
    assert rows == [
        "changed provider north max_concurrent",
        "changed provider away switched on, key",
        "new provider openai -",
        f'locked provider filed "filed" is taken by {folder / "causerie.toml"}:8, which wins',
    ]
    found = tomllib.loads(terminal.done("export"))
    assert [one.get("name") for one in found["providers"]] == [
        "north", "south-2", "away", "openai",
    ]  # fmt: skip
    assert found["providers"][0]["key"] == {"env": "NORTH_API_KEY"}, "the kept key stays"
    assert len(found["aliases"][0]["targets"]) == 2


def test_an_import_that_does_not_hold_tells_all_problems(folder: Path, terminal: Terminal) -> None:
    keep(folder, [DRAFTS[0], DRAFTS[4]])
    before = terminal.done("export")
    (folder / "entries.toml").write_text(
        """
[[providers]]
name = "north"
base_url = "http://elsewhere.example/v1"
key = { env = "UNSET" }
[[providers]]
name = "wrong"
base_url = "nowhere"
colour = 1
[[aliases]]
id = "lost"
targets = [{ provider = "nobody", model = "m" }]
[[aliases]]
id = "lost"
targets = []
"""
    )
    result = terminal.run("import", "entries.toml", "--yes")
    assert (result.exit_code, result.stdout) == (3, "")
    assert 'entries.toml:13: "lost" stands here twice' in result.stderr
    text = (folder / "entries.toml").read_text()
    (folder / "entries.toml").write_text(text.rpartition("[[aliases]]")[0])
    result = terminal.run("import", "entries.toml", "--yes")
    assert result.exit_code == 3
    for words in (
        "entries.toml:2: key: the variable UNSET is not set",
        "entries.toml:6: base_url: is",
        "entries.toml:6: colour: ",
        "entries.toml:10: targets[0].provider: no provider",
    ):
        assert words in result.stderr
    assert "reached at another place" in result.stderr
    assert terminal.done("export") == before
    inline = '[[providers]]\nname = "x"\nkey = "sk-inline"\n[[aliases]]\n'
    (folder / "entries.toml").write_text(inline)
    result = terminal.run("import", "entries.toml", "--yes")
    assert result.exit_code == 3
    assert "entries.toml:1: key: is no place of a key" in result.stderr
    assert "entries.toml:4: id: is missing" in result.stderr
    assert "sk-inline" not in result.stderr


def test_check_and_models_show_what_the_database_holds(folder: Path, terminal: Terminal) -> None:
    more = EntryDraft("model", "second", {"engine": "fake"})
    price = EntryDraft("model", "own", {"price": {"prompt": "3"}})
    keep(folder, [*DRAFTS, more, price])
    assert "second" not in terminal.done("check") + terminal.done("models")
    result = terminal.run("check", "--database")
    assert result.exit_code == 0
    assert SECRET not in result.output
    assert f'base_url = "{HERE}"  # the entry of provider "north"\n' in result.stdout
    assert 'prompt = "3"  # the entry of model "own"\n' in result.stdout
    assert 'engine = "fake"  # line 7\n' in result.stdout
    assert tomllib.loads(result.stdout)["models"][1]["id"] == "second"
    assert 'the entry of provider "away" is not in force: switched off\n' in result.stderr
    assert 'the entry of alias "gone" is not in force: targets[0]' in result.stderr
    ids = [one["id"] for one in terminal.json("models", "--database")]
    assert ids[:2] == ["own", "second"]


def test_a_pruning_import_leaves_what_the_file_names(folder: Path, terminal: Terminal) -> None:
    """A file in version control is all that the database holds, and nothing is half deleted."""
    keep(folder, [DRAFTS[1], DRAFTS[2], EntryDraft("alias", "far", {"targets": TO_SOUTH})])
    file = folder / "entries.toml"
    file.write_text('[[aliases]]\nid = "far"\ntargets = [{ provider = "south-2", model = "m" }]\n')
    before = terminal.done("export")
    result = terminal.run("import", "entries.toml", "--prune", "--yes")
    assert result.exit_code == 3, "the alias would lose its provider"
    assert terminal.done("export") == before
    with file.open("a") as more:
        more.write(
            '[[providers]]\nname = "south-2"\nknown = "ollama"\ntimeouts = { total = 9.5 }\n'
        )
    result = terminal.run("import", "entries.toml", "--prune", stdin="n\n")
    assert "away" in terminal.done("export"), "nobody has agreed"
    result = terminal.run("import", "entries.toml", "--prune", "--yes")
    assert (result.exit_code, result.stderr) == (0, "1 entry written.\n"), result.output
    rows = [" ".join(line.split()) for line in result.stdout.splitlines()[1:]]
    assert rows == ["same provider south-2 -", "same alias far -", "deleted provider away -"]
    assert "away" not in terminal.done("export")
    assert terminal.run("import", "entries.toml", "--prune").stderr == "Nothing to write.\n"


TO_SOUTH = [{"provider": "south-2", "model": "m"}]
