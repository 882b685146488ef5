"""The database itself: where it is, whose certificates it trusts, its connections, the version of
its tables, and what a failure of it means; and rows as the nouns of ``accounts``.

The migrations are part of the package. They run in one transaction under a lock, so that of
several processes that start together one does the work.
"""

from __future__ import annotations

import asyncio
import sqlite3
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from ssl import SSLContext
from time import monotonic
from typing import Any, TypeVar

import aiosqlite
import asyncpg
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    CursorResult,
    ExceptionContext,
    RowMapping,
    Select,
    Table,
    event,
    exc,
    make_url,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from causerie.errors import StoreUnavailable
from causerie.hosted.accounts.ports import Taken
from causerie.hosted.store.tables import METADATA

_PLAIN = ("disable", "allow", "prefer", "require")
_CHECKED = ("verify-ca", "verify-full")
_FILES = ("sslrootcert", "sslcert", "sslkey")


class WrongAddress(ValueError):
    """``store.url`` names no database that can be used; the message says what would be right."""


def tls_of(address: URL) -> tuple[URL, SSLContext | str | None]:
    """The address without what it says of TLS, and that as the driver takes it.

    Raises :class:`WrongAddress`. Reads files.
    """
    given = {name: _one(address, name) for name in ("sslmode", *_FILES) if name in address.query}
    plain = address.difference_update_query(list(given))
    mode = given.pop("sslmode", None)
    if mode is None:
        if given:
            raise WrongAddress(f"`{next(iter(given))}` means nothing without `sslmode=verify-full`")
        return plain, None
    if mode in _PLAIN:
        if given:
            raise WrongAddress(
                f"`{next(iter(given))}` is not looked at with `sslmode={mode}`; "
                "write `sslmode=verify-full`"
            )
        return plain, mode
    if mode not in _CHECKED:
        raise WrongAddress(f"`sslmode` is one of {', '.join((*_PLAIN, *_CHECKED))}")
    return plain, _context(mode, given)


def _one(address: URL, name: str) -> str:
    value = address.query[name]
    if isinstance(value, tuple):
        raise WrongAddress(f"`{name}` is there more than once")
    return value


def _context(mode: str, files: dict[str, str]) -> SSLContext:
    root, shown = files.get("sslrootcert"), files.get("sslcert")
    if "sslkey" in files and shown is None:
        raise WrongAddress("`sslkey` needs `sslcert`")
    try:
        context = ssl.create_default_context(cafile=None if root == "system" else root)
        if shown is not None:
            context.load_cert_chain(shown, files.get("sslkey"))
    except OSError as failure:  # ssl.SSLError is one
        wrong = " or ".join(f"`{name}`" for name in files)
        raise WrongAddress(f"a file of {wrong} is not there, or no PEM file") from failure
    context.check_hostname = mode == "verify-full"
    return context


_BUSY_SECONDS = 5
_BUSY_AGAIN_SECONDS = 0.01
_CONNECT_SECONDS = 5
_STATEMENT_SECONDS = 30
_READERS = 4
_POSTGRES_CONNECTIONS = 8

_NOT_THERE = (
    exc.OperationalError,
    exc.InterfaceError,
    exc.TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InsufficientResourcesError,  # the disk is full, too many are connected
    asyncpg.ObjectNotInPrerequisiteStateError,  # a lock that was not to be had in time
    asyncpg.OperatorInterventionError,  # it stops or starts, a statement took too long
    asyncpg.PostgresSystemError,
    asyncpg.ReadOnlySQLTransactionError,  # it follows another now
    asyncpg.TransactionRollbackError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InterfaceError,
    OSError,  # and TimeoutError, which is one
)
_OTHERWISE = (
    "The database does not do what this version of the program asks: a newer one has changed its "
    "tables, or the database's user lacks a right."
)
_ANOTHER_FILE = (
    "The file of the database was removed or replaced while it is in use. Put it back, or restart "
    "the service."
)


class Database:
    """Connections to one database. Close it in the loop that used it."""

    def __init__(self, url: str) -> None:
        """Raises :class:`WrongAddress`. Connects on first use only."""
        address = _address(url)
        self.sqlite = address.get_backend_name() == "sqlite"
        if self.sqlite:
            self._writer = _sqlite(address, connections=1, begin="BEGIN IMMEDIATE")
            self._reader = _sqlite(address, connections=_READERS, begin="BEGIN", reads_only=True)
        else:
            self._connect = partial(_postgres, *tls_of(address))
            self._writer = self._reader = self._connect(_STATEMENT_SECONDS)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that writes; leaving without an exception commits it durably.

        Raises :class:`StoreUnavailable` where the database cannot be used.
        """
        with _failures():
            async with self._writer.begin() as connection:
                yield connection

    @asynccontextmanager
    async def migrating(self) -> AsyncIterator[AsyncConnection]:
        """As :meth:`writing`, for statements that take as long as all there is needs.

        Raises :class:`StoreUnavailable` where the database cannot be used.
        """
        engine = self._writer if self.sqlite else self._connect(None)
        try:
            with _failures():
                async with engine.begin() as connection:
                    yield connection
        finally:
            if engine is not self._writer:
                await engine.dispose()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that sees one state of everything and changes nothing.

        Raises :class:`StoreUnavailable` where the database cannot be used.
        """
        with _failures():
            async with self._reader.connect() as connection:
                yield connection

    async def checkpoint(self) -> None:
        """Of SQLite: what the log held goes into the file, and from the log."""
        with _failures():
            async with self._writer.connect() as connection:
                raw = await connection.get_raw_connection()  # no transaction may be open
                driver = raw.driver_connection
                assert driver is not None
                await driver.execute_fetchall("PRAGMA wal_checkpoint(TRUNCATE)")

    async def close(self) -> None:
        await self._writer.dispose()
        if self._reader is not self._writer:
            await self._reader.dispose()


@contextmanager
def _failures() -> Iterator[None]:
    # Their text names hosts, users and statements. A cancelled caller stays cancelled.
    try:
        yield
    except ssl.SSLCertVerificationError as failure:
        raise StoreUnavailable("The certificate of the database is not trusted.") from failure
    except _NOT_THERE as failure:
        raise StoreUnavailable() from failure
    except exc.DBAPIError as failure:
        driver = failure.orig.__cause__ if failure.orig is not None else None
        if failure.connection_invalidated or isinstance(driver, _NOT_THERE):
            raise StoreUnavailable() from failure
        if isinstance(driver, asyncpg.SyntaxOrAccessError):
            raise StoreUnavailable(_OTHERWISE) from failure
        raise


def obstacle_of(failure: Exception) -> str:
    """Return what is wrong with the database, for whoever starts the service.

    That is in the words of the system or of SQLite, which name no user, password or statement.
    """
    cause: BaseException = failure
    while cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(failure, StoreUnavailable) and isinstance(cause, OSError):
        return cause.strerror or str(failure)
    known = isinstance(failure, StoreUnavailable) and isinstance(cause, sqlite3.OperationalError)
    return str(cause) if known else str(failure)


def _address(url: str) -> URL:
    try:
        address = make_url(url)
    except exc.ArgumentError as failure:
        raise WrongAddress(
            "the address of the database is written `sqlite:///PATH` or "
            "`postgresql://USER:PASSWORD@HOST:PORT/NAME`"
        ) from failure
    kind = address.drivername
    if kind == "sqlite":
        if address.database in (None, "", ":memory:"):
            raise WrongAddress("a SQLite address names a file: `sqlite:///PATH`")
        return address.set(drivername="sqlite+aiosqlite")
    if kind in ("postgresql", "postgres"):
        return address.set(drivername="postgresql+asyncpg")
    raise WrongAddress(f"{kind!r} is no database known here; there are `sqlite` and `postgresql`")


def _sqlite(address: URL, *, connections: int, begin: str, reads_only: bool = False) -> AsyncEngine:
    file = Path(address.database or "")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)  # digests and two-factor secrets are nobody else's to read
    identity = _identity(file)
    engine = create_async_engine(
        address,
        pool_size=connections,
        max_overflow=0,
        pool_timeout=_STATEMENT_SECONDS,
        connect_args={"timeout": _BUSY_SECONDS},
    )

    @event.listens_for(engine.sync_engine, "connect")
    def set_up(connection: Any, record: object) -> None:
        del record
        connection.isolation_level = None  # transactions begin where we say, not where it guesses
        connection.run_async(_with_a_log)
        cursor = connection.cursor()
        for line in _pragmas(reads_only=reads_only):
            cursor.execute(f"PRAGMA {line}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "do_connect")
    def connect(*_: object) -> None:  # it would make an empty file
        _expect(file, identity)

    @event.listens_for(engine.sync_engine, "begin")
    def begin_transaction(connection: Connection) -> None:
        _expect(file, identity)
        connection.exec_driver_sql(begin)

    return engine


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _expect(file: Path, identity: tuple[int, int] | None) -> None:
    if _identity(file) != identity:
        raise StoreUnavailable(_ANOTHER_FILE)


async def _with_a_log(driver: aiosqlite.Connection) -> None:
    # If several connections change a new file to a write-ahead log at once, SQLite tells all but
    # one that it is locked, at once: its busy timeout does not apply to this.
    ends = monotonic() + _BUSY_SECONDS
    while True:
        try:
            await driver.execute_fetchall("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as failure:
            if failure.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or monotonic() > ends:
                raise
            await asyncio.sleep(_BUSY_AGAIN_SECONDS)


def _pragmas(*, reads_only: bool) -> Iterator[str]:
    yield "synchronous = FULL"  # a commit outlives a power cut, not only a crash of ours
    yield "foreign_keys = ON"
    yield "cache_size = -32768"  # KiB
    yield "temp_store = MEMORY"
    if reads_only:
        yield "query_only = ON"


def _postgres(
    address: URL, tls: SSLContext | str | None, statement_seconds: float | None
) -> AsyncEngine:
    engine = create_async_engine(
        address,
        pool_size=_POSTGRES_CONNECTIONS,
        max_overflow=0,
        pool_timeout=_CONNECT_SECONDS,
        pool_pre_ping=True,
        connect_args={
            "timeout": _CONNECT_SECONDS,
            "command_timeout": statement_seconds,
            **({"ssl": tls} if tls is not None else {}),
        },
    )
    event.listen(engine.sync_engine, "handle_error", _leave_followers)
    return engine


def _leave_followers(context: ExceptionContext) -> None:
    # The server of a connection that only reads may follow another one for good.
    failure = context.original_exception.__cause__
    if isinstance(failure, asyncpg.ReadOnlySQLTransactionError):
        context.is_disconnect = True


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
    config.set_main_option("script_location", "causerie.hosted.store:migrations")
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


T = TypeVar("T")


def row_of(table: Table, noun: Any) -> dict[str, Any]:
    names = {each.name for each in fields(noun)}
    return {column.name: getattr(noun, column.name) for column in table.c if column.name in names}


def part_of(table: Table, row: RowMapping) -> dict[str, Any]:
    """Of a row that was joined, the columns of one table."""
    return {column.name: row[column.name] for column in table.c}


def one_of(table: Table, id: str, *, writing: bool) -> Select[Any]:
    """The row with this id; a writing block keeps it from others until its end.

    So nobody writes a row back as it was before somebody else has changed it.
    """
    query = select(table).where(table.c.id == id)
    return query.with_for_update(key_share=True) if writing else query


async def nouns_of(found: CursorResult[Any], noun: Callable[[RowMapping], T]) -> list[T]:
    """Return what ``noun`` makes of each row, off the event loop: there may be thousands."""
    return await asyncio.to_thread(lambda: [noun(row) for row in found.mappings()])


async def insert(connection: AsyncConnection, table: Table, noun: Any) -> None:
    """Add a row; raises :class:`Taken` where what should be unique is there already."""
    try:
        await connection.execute(table.insert().values(row_of(table, noun)))
    except IntegrityError as failure:
        raise Taken(table.name) from failure


async def update(
    connection: AsyncConnection, table: Table, where: ColumnElement[bool], noun: Any
) -> None:
    await connection.execute(table.update().where(where).values(row_of(table, noun)))


async def upsert(
    connection: AsyncConnection,
    table: Table,
    values: Mapping[str, Any],
    changed: Mapping[str, Any] | None = None,
) -> None:
    """Add a row, or change the one with its primary key, to ``values`` or as ``changed`` says."""
    make = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    keys = [column.name for column in table.primary_key]
    new = changed or {name: value for name, value in values.items() if name not in keys}
    statement = make(table).values(**values)
    await connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=dict(new)))
