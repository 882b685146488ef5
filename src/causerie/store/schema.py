"""Brings a database's tables to the version of this program, and back.

The migrations are part of the package. They run in one transaction under a
lock, so that of several processes that start together one does the work.
"""

from __future__ import annotations

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from causerie.store.database import Database
from causerie.store.tables import METADATA

_LOCK = 0x63617573  # any number, the same for every process


class NewerSchema(Exception):
    """The database was made by another version of the program, which has to be run instead."""


async def upgrade(database: Database, revision: str = "head") -> None:
    """Bring the tables to ``revision``.

    Raises :class:`NewerSchema` where the tables are of a version unknown here,
    and :class:`~causerie.errors.StoreUnavailable`.
    """
    async with database.migrating() as connection:
        await connection.run_sync(_upgrade, revision)


async def downgrade(database: Database, revision: str = "base") -> None:
    """Take the tables back to ``revision``; what only newer ones hold is lost."""
    async with database.migrating() as connection:
        await connection.run_sync(_downgrade, revision)


async def revision(database: Database) -> str | None:
    """The revision the tables have; ``None`` where there are none."""
    async with database.reading() as connection:
        return await connection.run_sync(_current)


async def differences(database: Database) -> list[str]:
    """Return the differences between existing tables and those that the queries know; for tests."""
    async with database.writing() as connection:
        return await connection.run_sync(_differences)


def _upgrade(connection: Connection, revision: str) -> None:
    _lock(connection)
    config = _config(connection)
    current = _current(connection)
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if current is not None and current not in known:
        raise NewerSchema(
            f"the database has revision {current}, which this version of the program does not "
            "know: run the newer version that made it. A database from before the first release "
            "cannot be taken over: export its configuration with the version that made it "
            "(`causerie export-config`), and start with a new database"
        )
    command.upgrade(config, revision)


def _downgrade(connection: Connection, revision: str) -> None:
    _lock(connection)
    command.downgrade(_config(connection), revision)


def _lock(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")


def _current(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _differences(connection: Connection) -> list[str]:
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    return [repr(each) for each in compare_metadata(context, METADATA)]


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", "causerie.store:migrations")
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
