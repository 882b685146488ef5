"""The tables: made on both databases; and what the database holds to."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import stat
from contextlib import closing
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from ledgerkit import record
from sqlalchemy import Connection, exc, inspect, make_url, text
from sqlalchemy.schema import CreateIndex, CreateTable
from storekit import REVISIONS

from causerie import __version__
from causerie.errors import StoreUnavailable
from causerie.hosted.store.database import (
    Database,
    OtherSchema,
    WrongAddress,
    obstacle_of,
    revision,
    upgrade,
    upgrade_plan,
)
from causerie.hosted.store.tables import METADATA, microseconds
from causerie.hosted.store.usage import SqlUsage


async def differences(database: Database) -> list[str]:
    """The differences between the tables in a database and those that the queries know."""

    def compared(connection: Connection) -> list[str]:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return [repr(each) for each in compare_metadata(context, METADATA)]

    async with database.writing() as connection:
        return await connection.run_sync(compared)


async def names(database: Database) -> set[str]:
    async with database.reading() as connection:
        found = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
    return set(found) - {"alembic_version"}


async def test_a_new_database_has_what_the_queries_know(database: Database) -> None:
    assert await differences(database) == []
    assert await names(database) == set(METADATA.tables)


DIGEST = ("0100", "ca64da3d416d888c")
"""The newest revision, and a digest of the tables that it leads to."""


def test_changed_tables_have_a_revision_of_their_own() -> None:
    """A new database is made of the tables: one that is there would lack what they have more."""
    made = "".join(str(CreateTable(each)) for each in METADATA.sorted_tables)
    made += "".join(
        sorted(str(CreateIndex(one)) for t in METADATA.sorted_tables for one in t.indexes)
    )
    found = REVISIONS[-1], sha256(made.encode()).hexdigest()[:16]
    assert found == DIGEST, "write a migration; before the first release this digest is enough"


async def test_several_processes_may_start_together(store_url: str) -> None:
    databases = [Database(store_url) for _ in range(3)]
    await asyncio.gather(*map(upgrade, databases))
    assert await differences(databases[0]) == []
    for each in databases:
        await each.close()


async def test_a_new_file_that_another_writes_is_waited_for(tmp_path: Path) -> None:
    """SQLite does not, where it is to change the file to one with a log."""
    file = tmp_path / "causerie.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        database = Database(f"sqlite:///{file}")
        waiting = asyncio.create_task(upgrade(database))
        await asyncio.wait({waiting}, timeout=0.2)
        assert not waiting.done()
        other.execute("COMMIT")
        await waiting
    assert await differences(database) == []
    await database.close()


async def test_a_migration_takes_the_time_that_it_needs(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large table one statement may last longer than any that a request waits for."""
    monkeypatch.setattr("causerie.hosted.store.database._STATEMENT_SECONDS", 1e-6)
    hurried = Database(store_url)
    await upgrade(hurried)
    await hurried.close()
    monkeypatch.undo()
    database = Database(store_url)
    assert await differences(database) == []
    await database.close()


async def test_a_newer_database_says_that_this_version_can_serve_it(database: Database) -> None:
    await become_newer(database, REVISIONS[0])
    await upgrade(database)
    assert await revision(database) == "9999"
    assert (await upgrade_plan(database)).steps == []


async def test_a_newer_database_that_has_lost_what_this_version_needs_is_left_alone(
    database: Database,
) -> None:
    await become_newer(database, "9998")
    for work in (upgrade, upgrade_plan):
        with pytest.raises(OtherSchema, match=r"9999 of version 9\.0.*without revision 9998 serve"):
            await work(database)
    async with database.writing() as connection:
        await connection.execute(text("DROP TABLE schema_state"))
    with pytest.raises(OtherSchema, match="revision 9999 of a newer version: run the version that"):
        await upgrade(database)


async def test_a_database_from_before_the_first_release_says_what_to_do(database: Database) -> None:
    async with database.writing() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '0006'"))
    for work in (upgrade, upgrade_plan):
        with pytest.raises(OtherSchema, match=r"revision 0006, from before.*export-config.*new da"):
            await work(database)
    assert await revision(database) == "0006"


async def become_newer(database: Database, served_from: str) -> None:
    async with database.writing() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        state = {"served_from": served_from, "version": "9.0"}
        await connection.execute(
            text("UPDATE schema_state SET served_from = :served_from, version = :version"), state
        )


async def test_an_upgrade_says_who_can_serve_the_tables(database: Database) -> None:
    async with database.reading() as connection:
        found = await connection.execute(text("SELECT served_from, version FROM schema_state"))
        assert [tuple(row) for row in found] == [(REVISIONS[0], __version__)]


async def test_a_plan_names_every_change_and_makes_none(bare: Database) -> None:
    plan = await upgrade_plan(bare)
    assert (plan.revision, [each.revision for each in plan.steps]) == (None, REVISIONS)
    assert plan.steps[0].words == "All tables of the first release."
    assert (await revision(bare), await names(bare)) == (None, set())
    await upgrade(bare)
    plan = await upgrade_plan(bare)
    assert (plan.revision, plan.steps, plan.returns) == (REVISIONS[-1], [], True)


@pytest.mark.parametrize(
    "statement", ["UPDATE audit SET actor = 'somebody else'", "DELETE FROM audit"]
)
async def test_the_audit_log_is_only_added_to(database: Database, statement: str) -> None:
    await entered(database, datetime.now(UTC) - timedelta(days=89))
    with pytest.raises(exc.DBAPIError, match="only added to"):
        async with database.writing() as connection:
            await connection.execute(text(statement))


async def entered(database: Database, at: datetime) -> None:
    async with database.writing() as connection:
        await connection.execute(
            text(
                "INSERT INTO audit (at, actor, actor_name, action, subject, details) "
                "VALUES (:at, 'system', 'system', 'user.create', 'usr_1', '{}')"
            ),
            {"at": microseconds(at)},
        )


async def test_entries_of_the_audit_log_can_go_after_90_days(database: Database) -> None:
    await entered(database, datetime.now(UTC) - timedelta(days=91))
    async with database.writing() as connection:
        assert (await connection.execute(text("DELETE FROM audit"))).rowcount == 1


async def test_foreign_keys_hold(database: Database) -> None:
    with pytest.raises(exc.IntegrityError):
        async with database.writing() as connection:
            await connection.execute(
                text(
                    "INSERT INTO memberships (project_id, user_id, role, since) "
                    "VALUES ('prj_none', 'usr_none', 'owner', 1)"
                )
            )


@pytest.mark.parametrize(
    "state",
    ["53100", "57014", "25006", "40P01", "55P03", "58030", "42703"],
    ids=["full", "cancelled", "read-only", "deadlock", "locked", "broken disk", "newer tables"],
)
async def test_what_is_no_fault_of_the_row_is_a_database_that_is_away(
    hosted_database: str, state: str
) -> None:
    """So usage waits instead of being refused, and whoever follows changes goes on."""
    database = Database(hosted_database)
    with pytest.raises(StoreUnavailable):
        async with database.writing() as connection:
            await connection.execute(
                text(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{state}'; END $$")
            )
    await database.close()


async def test_whoever_starts_a_service_reads_what_is_wrong_with_the_database(
    tmp_path: Path,
) -> None:
    refused = Database("postgresql://ann:secret@127.0.0.1:1/books")
    with pytest.raises(StoreUnavailable) as failure:
        await upgrade(refused)
    await refused.close()
    assert obstacle_of(failure.value).startswith("Connect call failed")
    assert "secret" not in obstacle_of(failure.value)
    full = Database(f"sqlite:///{tmp_path}/causerie.db")
    with pytest.raises(StoreUnavailable) as failure:
        async with full.writing() as connection:
            await connection.execute(text("PRAGMA max_page_count = 1"))
            await connection.execute(text("CREATE TABLE books (id TEXT)"))
    await full.close()
    assert obstacle_of(failure.value) == "database or disk is full"
    assert obstacle_of(OtherSchema("It is newer.")) == "It is newer."


async def test_a_block_that_fails_changes_nothing(database: Database) -> None:
    async def half() -> None:
        async with database.writing() as connection:
            await connection.execute(text("UPDATE change_counter SET number = 7"))
            raise KeyError("in the middle")

    with pytest.raises(KeyError):
        await half()
    async with database.reading() as connection:
        assert await connection.scalar(text("SELECT number FROM change_counter")) == 0


async def test_writers_wait_for_each_other(database: Database) -> None:
    async def add() -> None:
        async with database.writing() as connection:
            query = text("SELECT number FROM change_counter FOR UPDATE")
            if database.sqlite:
                query = text("SELECT number FROM change_counter")
            found = await connection.scalar(query)
            await connection.execute(
                text("UPDATE change_counter SET number = :n"), {"n": found + 1}
            )

    await asyncio.gather(*(add() for _ in range(20)))
    async with database.reading() as connection:
        assert await connection.scalar(text("SELECT number FROM change_counter")) == 20


async def test_sqlite_files_are_for_their_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "new" / "causerie.db"
    database = Database(f"sqlite:///{file}")
    await upgrade(database)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    await database.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://root@localhost/causerie", "sqlite"),
        ("sqlite://", "names a file"),
        ("sqlite:///:memory:", "names a file"),
        ("nonsense", "is written"),
    ],
)
def test_wrong_addresses_are_refused(url: str, words: str) -> None:
    with pytest.raises(WrongAddress, match=words):
        Database(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://somebody:hunter2@127.0.0.1:9/causerie",
        "postgresql://causerie@/causerie?host=/nowhere",
    ],
)
async def test_a_database_that_is_not_there_is_named_as_such_without_its_address(url: str) -> None:
    database = Database(url)
    with pytest.raises(StoreUnavailable) as caught:
        await revision(database)
    assert caught.value.status == 503
    assert "hunter2" not in str(caught.value)
    await database.close()


async def test_a_server_that_only_reads_is_left_for_one_that_writes(hosted_database: str) -> None:
    """After a failover a pooled connection may lead to what follows the new server for good."""
    name = make_url(hosted_database).database
    operator, database = Database(hosted_database), Database(hosted_database)
    try:
        async with operator.writing() as connection:
            await connection.execute(
                text(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
            )
        with pytest.raises(StoreUnavailable):
            async with database.writing() as connection:
                await connection.execute(text("CREATE TABLE kept (id int)"))
        async with operator.writing() as connection:
            await connection.execute(text(f"ALTER DATABASE {name} RESET ALL"))
        async with database.writing() as connection:
            await connection.execute(text("CREATE TABLE kept (id int)"))
    finally:
        await operator.close()
        await database.close()


async def test_a_file_that_was_removed_is_not_written_to(
    tmp_path: Path, sqlite_template: Path
) -> None:
    """What is written to it would be gone at the next start; in the journal it is safe."""
    made_file, away = tmp_path / "causerie.db", tmp_path / "away.db"
    shutil.copyfile(sqlite_template, made_file)
    database = Database(f"sqlite:///{made_file}")
    one = record()
    await SqlUsage(database).append([one])
    made_file.rename(away)
    for block in (database.writing, database.reading):
        with pytest.raises(StoreUnavailable, match="removed or replaced"):
            async with block() as connection:
                await connection.execute(text("SELECT 1"))
    shutil.copyfile(away, made_file)
    with pytest.raises(StoreUnavailable, match="removed or replaced"):
        await SqlUsage(database).append([one])
    away.rename(made_file)
    async with database.reading() as connection:
        await connection.execute(text("SELECT 1"))
    await SqlUsage(database).append([one])
    await database.close()
