"""The database itself: where it is, its connections, and what a failure of it means.

One address says which: ``sqlite:///PATH`` or ``postgresql://USER@HOST/NAME``.
A block that reads and a block that writes are told apart, because SQLite has
one writer: here writers queue for one connection, instead of running into the
lock of each other. Nothing is known here of what is stored.
"""

from __future__ import annotations

import asyncio
import sqlite3
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from ssl import SSLContext
from time import monotonic
from typing import Any

import aiosqlite
import asyncpg
from sqlalchemy import URL, Connection, ExceptionContext, event, exc, make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from causerie.errors import StoreUnavailable
from causerie.store.tls import WrongAddress, tls_of

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
    """Map errors of drivers without a usable database to our own, without their text.

    Their text names hosts, users and statements. A cancelled caller stays cancelled.
    """
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
    """Return the numbers of the device and the inode of a file; ``None`` without one."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _expect(file: Path, identity: tuple[int, int] | None) -> None:
    """Raise :class:`StoreUnavailable` if this is not the file any more: what is written is lost."""
    if _identity(file) != identity:
        raise StoreUnavailable(_ANOTHER_FILE)


async def _with_a_log(driver: aiosqlite.Connection) -> None:
    """Have the file write ahead to a log.

    If several connections change a new file to that at once, SQLite tells all but one that it is
    locked, at once: its own patience is not for this.
    """
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
    """Connect anew once a connection only reads: its server may follow another one for good."""
    failure = context.original_exception.__cause__
    if isinstance(failure, asyncpg.ReadOnlySQLTransactionError):
        context.is_disconnect = True
