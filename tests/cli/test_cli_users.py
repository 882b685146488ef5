"""``causerie users`` and ``causerie projects`` on a database of their own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from accountkit import PASSWORD, World
from clikit import Terminal

from causerie.hosted.accounts.people import SYSTEM, User
from causerie.hosted.store.database import Database

T = TypeVar("T")


def accept(terminal: Terminal, token: str, email: str) -> User:
    """Use a link, as the service would."""

    async def use(world: World) -> User:
        return await world.users.accept(token, email=email, name="A", password=PASSWORD)

    return with_world(terminal, use)


def with_world(terminal: Terminal, work: Callable[[World], Awaitable[T]]) -> T:
    """Do something alongside the terminal, on the same database."""

    async def run() -> T:
        database = Database(f"sqlite:///{terminal.folder}/causerie.db")
        try:
            return await work(World(database))
        finally:
            await database.close()

    return asyncio.run(run())


def test_a_link_makes_the_first_operator(terminal: Terminal) -> None:
    result = terminal.run("users", "create", "Ann@example.org", "--operator")
    address = result.stdout.strip()
    assert address.startswith("http://127.0.0.1:8000/console/link#")
    assert "for ann@example.org alone" in result.stderr
    user = accept(terminal, address.partition("#")[2], "ann@example.org")
    [listed] = terminal.json("users", "list")
    assert (listed["id"], listed["operator"]) == (user.id, True)


def test_links_name_the_address_of_the_service(terminal: Terminal) -> None:
    made = terminal.json(
        "users", "create", "a@b.example", "--set", "console.address=https://llm.example.org"
    )
    assert made["path"].startswith("https://llm.example.org/console/link#")
    six = ("--set", "server.host=::1")
    made = terminal.json("users", "create", "bea@example.org", *six)
    assert made["path"].startswith("http://[::1]:8000/console/link#")
    assert made["path"].endswith(made["token"])


def test_an_account_with_a_password(terminal: Terminal) -> None:
    words = ("users", "create", "ann@example.org", "--name", "Ann", "--password-stdin")
    made = terminal.json(*words, stdin=f"{PASSWORD}\n")
    assert (made["email"], made["name"], made["operator"]) == ("ann@example.org", "Ann", False)
    again = terminal.run(*words, stdin=f"{PASSWORD}\n")
    assert (again.exit_code, again.stdout) == (1, "")
    assert again.stderr == "causerie: This address has an account already; sign in with it.\n"
    table = terminal.done("users", "list")
    assert "ann@example.org" in table
    assert PASSWORD not in table


@pytest.mark.parametrize("stdin", ["", "\n", "short\n"])
def test_a_password_that_is_none(terminal: Terminal, stdin: str) -> None:
    result = terminal.run("users", "create", "a@b.example", "--password-stdin", stdin=stdin)
    assert result.exit_code in (1, 2)
    assert result.stderr.startswith("causerie: ")
    assert terminal.json("users", "list") == []


def test_the_life_of_a_user(terminal: Terminal) -> None:
    for name in ("ann", "bea"):
        stdin = f"{PASSWORD}\n"
        terminal.done("users", "create", f"{name}@example.org", "--password-stdin", stdin=stdin)
    assert terminal.json("users", "operator", "ann@example.org")["operator"] is True
    last = terminal.run("users", "operator", "ann@example.org", "--revoke")
    assert (last.exit_code, "last operator" in last.stderr) == (1, True)
    assert terminal.json("users", "disable", "BEA@example.org")["disabled_at"] is not None
    assert "disabled" in terminal.done("users", "list")
    bea = terminal.json("users", "enable", "bea@example.org")
    assert bea["disabled_at"] is None
    link = terminal.json("users", "link", bea["id"])
    assert (link["kind"], link["user"]) == ("reset", bea["id"])
    nobody = terminal.run("users", "link", "nobody@example.org")
    assert nobody.exit_code == 2
    assert "there is no user 'nobody@example.org'" in nobody.stderr


def test_a_second_factor_that_was_lost_is_removed(terminal: Terminal) -> None:
    stdin = f"{PASSWORD}\n"
    terminal.done("users", "create", "ann@example.org", "--password-stdin", stdin=stdin)
    none = terminal.run("users", "remove-factor", "ann@example.org")
    assert (none.exit_code, none.stderr) == (
        1,
        "causerie: This user has no two-factor authentication.\n",
    )

    async def enrol(world: World) -> None:
        (ann,) = await world.users.every(SYSTEM)
        await world.factor(ann)

    with_world(terminal, enrol)
    removed = terminal.run("users", "remove-factor", "Ann@example.org")
    assert removed.stderr == "Two-factor authentication of ann@example.org is removed.\n"
    assert terminal.run("users", "remove-factor", "ann@example.org").exit_code == 1


def test_projects(terminal: Terminal) -> None:
    terminal.done("users", "create", "a@b.example", "--password-stdin", stdin=f"{PASSWORD}\n")
    made = terminal.json("projects", "create", "Rockets", "--owner", "a@b.example")
    assert made["name"] == "Rockets"
    assert [each["id"] for each in terminal.json("projects", "list")] == [made["id"]]
    assert made["id"] in terminal.done("projects", "list")
    assert terminal.run("projects", "create", "X", "--owner", "c@d.example").exit_code == 2


def test_names_cannot_act_on_the_terminal(terminal: Terminal) -> None:
    word = "a\N{RIGHT-TO-LEFT OVERRIDE}b"
    refused = terminal.run("projects", "create", word)
    assert (refused.exit_code, refused.stdout) == (1, "")
    terminal.done("projects", "create", "[bold]Rockets[/bold]")
    assert "[bold]Rockets[/bold]" in terminal.done("projects", "list")


def test_a_database_that_cannot_be_used(tmp_path: Path, terminal: Terminal) -> None:
    (tmp_path / "file").write_text("no database", encoding="utf-8")
    words = ("users", "list", "--set", f"store.url=sqlite:///{tmp_path}/file/causerie.db")
    result = terminal.run(*words)
    assert result.exit_code == 1
    assert result.stderr.startswith("causerie: ")
    assert "Traceback" not in result.output


def test_the_tables_are_brought_to_this_version_beforehand(terminal: Terminal) -> None:
    (terminal.folder / "causerie.db").unlink()
    plan = terminal.done("migrate", "--plan")
    assert plan.startswith("The database has no tables yet; an upgrade makes ")
    told = terminal.done("migrate")
    assert told.startswith("The database has revision 01")
    assert terminal.done("migrate") == told
    state = told.removesuffix(".\n")
    assert terminal.done("migrate", "--plan") == f"{state}; an upgrade makes no change.\n"


def test_a_database_of_a_newer_version_is_left_alone(terminal: Terminal) -> None:
    terminal.done("migrate")
    with sqlite3.connect(terminal.folder / "causerie.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.execute("UPDATE schema_state SET served_from = '9999', version = '9.0'")
    connection.close()
    for words in (["migrate"], ["migrate", "--plan"]):
        result = terminal.run(*words)
        assert result.exit_code == 1
        assert "revision 9999 of version 9.0" in result.stderr
