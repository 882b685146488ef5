"""``causerie keys``: what it makes works in a service on the same database, until it is ended."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest
from accountkit import World
from clikit import Terminal

from causerie.hosted.accounts.tokens import digest
from causerie.hosted.store.database import Database


@pytest.fixture
def project(terminal: Terminal) -> str:
    made: str = terminal.json("projects", "create", "Rockets")["id"]
    return made


def works(terminal: Terminal, credential: str) -> bool:
    """Return true if the database admits the bearer."""

    async def ask() -> bool:
        database = Database(f"sqlite:///{terminal.folder}/causerie.db")
        try:
            async with World(database).store.reading() as repositories:
                grant = await repositories.keys.grant(digest(credential))
        finally:
            await database.close()
        return grant is not None and grant.works

    return asyncio.run(ask())


def test_a_key_is_shown_once(terminal: Terminal, project: str) -> None:
    result = terminal.run("keys", "create", "Rockets", "--name", "build bot", "--days", "30")
    credential = result.stdout.strip()
    assert works(terminal, credential)
    assert "shown this once" in result.stderr
    [listed] = terminal.json("keys", "list", project)
    assert credential.startswith(f"{listed['id']}_")
    assert (listed["name"], listed["created_by"], listed["purpose"]) == (
        *("build bot", "cli", "inference"),
    )
    made, ends = (datetime.fromisoformat(listed[name]) for name in ("created_at", "expires_at"))
    assert abs(ends - made - timedelta(days=30)) < timedelta(minutes=1)
    table = terminal.done("keys", "list")
    assert listed["id"] in table
    assert credential not in table


def test_what_a_key_may(terminal: Terminal, project: str) -> None:
    words = ("--model", "small", "--model", "large", "--door", "hosted")
    made = terminal.json("keys", "create", project, *words)
    assert (made["models"], made["doors"]) == (["large", "small"], ["hosted"])
    assert terminal.json("keys", "create", project, "--management")["purpose"] == "management"


def test_names_that_the_configuration_does_not_have_are_said(
    terminal: Terminal, project: str
) -> None:
    fitting = terminal.run("keys", "create", project, "--model", "smollm2-135m")
    assert "configuration" not in fitting.stderr
    made = terminal.run("keys", "create", project, "--model", "smol", "--door", "hoster")
    assert made.exit_code == 0  # they may come later
    assert (
        "No model is named 'smol' in the configuration; known: smollm2-135m.\n"
        "No door is named 'hoster' in the configuration; known: endpoint, smollm2-135m.\n"
    ) in made.stderr


def test_the_life_of_a_key(terminal: Terminal, project: str) -> None:
    made = terminal.json("keys", "create", project)
    id, first = made["id"], made["credential"]
    assert terminal.json("keys", "disable", id)["state"] == "disabled"
    assert not works(terminal, first)
    assert terminal.json("keys", "enable", id)["state"] == "active"
    assert works(terminal, first)
    second = terminal.done("keys", "rotate", id, "--grace", "24").strip()
    assert second.startswith(f"{id}_")
    assert works(terminal, first)  # for a day
    assert works(terminal, second)
    terminal.done("keys", "delete", id)
    assert not works(terminal, second)
    gone = terminal.run("keys", "enable", id)
    assert (gone.exit_code, gone.stderr) == (1, "causerie: There is no such key.\n")
    assert terminal.json("keys", "list") == []


def test_which_project_is_meant(terminal: Terminal, project: str) -> None:
    other = terminal.json("projects", "create", "Rockets")["id"]
    result = terminal.run("keys", "create", "Rockets")
    assert result.exit_code == 2
    assert project in result.stderr
    assert other in result.stderr
    assert terminal.run("keys", "list", "Boats").exit_code == 2


@pytest.mark.parametrize("word", ["' OR '1'='1", "'; DROP TABLE api_keys; --", "%", "ck_*"])
def test_words_that_look_like_queries(terminal: Terminal, project: str, word: str) -> None:
    kept = terminal.json("keys", "create", project)["credential"]
    for command in ("disable", "delete", "rotate"):
        assert terminal.run("keys", command, word).exit_code == 1
    assert terminal.run("keys", "create", word).exit_code == 2
    assert works(terminal, kept)
