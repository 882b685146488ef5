"""The database: its address, TLS, connections, failures and migrations.

Readers and writers are separate, because SQLite has one writer: writers queue for one connection
instead of running into each other's lock.
"""

from __future__ import annotations

import asyncio
import sqlite3
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from io import StringIO
from pathlib import Path
from ssl import SSLContext
from time import monotonic
from typing import Any

import aiosqlite
import asyncpg
import structlog
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import Script, ScriptDirectory
from alembic.util import CommandError
from msgspec import Struct
from sqlalchemy import (
    URL,
    Connection,
    ExceptionContext,
    Executable,
    RowMapping,
    event,
    exc,
    inspect,
    make_url,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from causerie import __version__
from causerie.errors import StoreUnavailable
from causerie.hosted.store.tables import METADATA, schema_state
from causerie.observe.logging import Outage

_PLAIN = ("disable", "allow", "prefer", "require")
_CHECKED = ("verify-ca", "verify-full")


class WrongAddress(ValueError):
    """``store.url`` names no usable database; the message tells the right form."""


def tls_of(address: URL) -> tuple[URL, SSLContext | str | None]:
    """Return the address without TLS parameters, and the driver's TLS argument made of them.

    ``sslmode``, ``sslrootcert``, ``sslcert`` and ``sslkey`` mean the same as for libpq (PostgreSQL,
    section 34.1.2), but without ``sslrootcert`` the system's certificates are trusted, and no
    default files are read. Reads files; raises :class:`WrongAddress`.
    """
    given: dict[str, str] = {}
    for name in ("sslmode", "sslrootcert", "sslcert", "sslkey"):
        if isinstance(value := address.query.get(name), tuple):
            raise WrongAddress(f"`{name}` is there more than once")
        if value is not None:
            given[name] = value
    plain = address.difference_update_query(list(given))
    mode = given.pop("sslmode", None)
    if mode in _CHECKED:
        return plain, _build_verifying_tls_context(mode, given)
    if mode not in (None, *_PLAIN):
        raise WrongAddress(f"`sslmode` is one of {', '.join((*_PLAIN, *_CHECKED))}")
    for name in given:
        if mode is None:
            raise WrongAddress(f"`{name}` means nothing without `sslmode=verify-full`")
        raise WrongAddress(
            f"`{name}` is not looked at with `sslmode={mode}`; write `sslmode=verify-full`"
        )
    return plain, mode


def _build_verifying_tls_context(ssl_mode: str, files: dict[str, str]) -> SSLContext:
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
    context.check_hostname = ssl_mode == "verify-full"
    return context


_BUSY_SECONDS = 5
_BUSY_AGAIN_SECONDS = 0.01
_CONNECT_SECONDS = 5
_STATEMENT_SECONDS = 30
_READERS = 4
_POSTGRES_CONNECTIONS = 8

_PRAGMAS = (
    "synchronous = FULL",  # a commit outlives a power cut, not only a crash of ours
    "foreign_keys = ON",
    "cache_size = -32768",  # KiB
    "temp_store = MEMORY",
)
_UNAVAILABLE = (
    exc.OperationalError,
    exc.InterfaceError,
    exc.TimeoutError,
    sqlite3.OperationalError,
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
_UNFIT_SCHEMA = (
    "The database does not do what this version of the program asks: a newer one has changed its "
    "tables, or the database's user lacks a right."
)
_FILE_REPLACED = (
    "The file of the database was removed or replaced while it is in use. Put it back, or restart "
    "the service."
)


class Database:
    """Connections to one database. Close it in the loop that used it."""

    def __init__(self, url: str) -> None:
        """Create the engines without connecting; raise :class:`WrongAddress` for a wrong URL."""
        self.outage = Outage("the database")
        address = _parse_address(url)
        self.sqlite = address.get_backend_name() == "sqlite"
        if self.sqlite:
            self._writer_engine = _sqlite_engine(address, connections=1, begin="BEGIN IMMEDIATE")
            self._reader_engine = _sqlite_engine(
                address, connections=_READERS, begin="BEGIN", reads_only=True
            )
        else:
            self._make_postgres_engine = partial(_postgres_engine, *tls_of(address))
            engine = self._make_postgres_engine(_STATEMENT_SECONDS)
            self._writer_engine = self._reader_engine = engine
        self.dialect = self._writer_engine.dialect

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        """Begin a writing transaction; leaving without an exception commits it durably.

        Raises :class:`StoreUnavailable`.
        """
        with self._track_outage():
            async with self._writer_engine.begin() as connection:
                yield connection

    @asynccontextmanager
    async def migrating(self) -> AsyncIterator[AsyncConnection]:
        """Begin a transaction as :meth:`writing`, without a time limit for its statements."""
        engine = self._writer_engine if self.sqlite else self._make_postgres_engine(None)
        try:
            with _raise_translated_failures():
                async with engine.begin() as connection:
                    yield connection
        finally:
            if engine is not self._writer_engine:
                await engine.dispose()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """Begin a reading transaction; raise :class:`StoreUnavailable`."""
        with self._track_outage():
            async with self._reader_engine.connect() as connection:
                yield connection

    async def rows(self, query: Executable) -> Sequence[RowMapping]:
        """Return the rows of a query; raise :class:`StoreUnavailable`."""
        async with self.reading() as connection:
            rows: Sequence[RowMapping] = (await connection.execute(query)).mappings().all()
        return rows

    async def write(self, statement: Executable) -> int:
        """Execute a statement in a transaction of its own; return the number of affected rows."""
        async with self.writing() as connection:
            return (await connection.execute(statement)).rowcount

    @contextmanager
    def _track_outage(self) -> Iterator[None]:
        try:
            with _raise_translated_failures():
                yield
        except StoreUnavailable as failure:
            self.outage.seen(reason=obstacle_of(failure))
            raise
        self.outage.over()

    async def checkpoint(self) -> None:
        """Copy SQLite's write-ahead log into the database file, and empty the log."""
        with _raise_translated_failures():
            async with self._writer_engine.connect() as connection:
                raw = await connection.get_raw_connection()  # no transaction may be open
                driver = raw.driver_connection
                assert driver is not None
                await driver.execute_fetchall("PRAGMA wal_checkpoint(TRUNCATE)")

    async def close(self) -> None:
        await self._writer_engine.dispose()
        if self._reader_engine is not self._writer_engine:
            await self._reader_engine.dispose()


@contextmanager
def _raise_translated_failures() -> Iterator[None]:
    # A cancelled caller stays cancelled, also where the driver fails because of it.
    try:
        yield
    except Exception as failure:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError from failure
        translated = _build_store_unavailable_or_none(failure)
        if translated is None:
            raise
        raise translated from failure


def _build_store_unavailable_or_none(failure: Exception) -> StoreUnavailable | None:
    # The words of drivers name hosts, users and statements.
    if isinstance(failure, ssl.SSLCertVerificationError):
        return StoreUnavailable("The certificate of the database is not trusted.")
    if isinstance(failure, _UNAVAILABLE):
        return StoreUnavailable()
    if not isinstance(failure, exc.DBAPIError):
        return None
    driver = failure.orig.__cause__ if failure.orig is not None else None
    if failure.connection_invalidated or isinstance(driver, _UNAVAILABLE):
        return StoreUnavailable()
    if isinstance(driver, asyncpg.SyntaxOrAccessError):
        return StoreUnavailable(_UNFIT_SCHEMA)
    return None


def obstacle_of(failure: Exception) -> str:
    """Return the cause of a database failure as text for the operator who starts the service.

    Only words of the system and of SQLite are used, which name no user, password or statement.
    """
    cause: BaseException = failure
    while cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(failure, StoreUnavailable) and isinstance(cause, OSError):
        return cause.strerror or str(failure)
    known = isinstance(failure, StoreUnavailable) and isinstance(cause, sqlite3.OperationalError)
    return str(cause) if known else str(failure)


def _parse_address(url: str) -> URL:
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


def _sqlite_engine(
    address: URL, *, connections: int, begin: str, reads_only: bool = False
) -> AsyncEngine:
    file = Path(address.database or "")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)  # digests and two-factor secrets are nobody else's to read
    identity = _read_file_identity(file)
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
        connection.run_async(_enable_write_ahead_log)
        cursor = connection.cursor()
        for line in (*_PRAGMAS, *(["query_only = ON"] if reads_only else [])):
            cursor.execute(f"PRAGMA {line}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "do_connect")
    def connect(*_: object) -> None:  # it would make an empty file
        _require_same_file(file, identity)

    @event.listens_for(engine.sync_engine, "begin")
    def begin_transaction(connection: Connection) -> None:
        _require_same_file(file, identity)
        connection.exec_driver_sql(begin)

    return engine


def _read_file_identity(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _require_same_file(file: Path, identity: tuple[int, int] | None) -> None:
    if _read_file_identity(file) != identity:
        raise StoreUnavailable(_FILE_REPLACED)


async def _enable_write_ahead_log(driver_connection: aiosqlite.Connection) -> None:
    # If several connections change a new file to a write-ahead log at once, SQLite tells all but
    # one that it is locked, at once: its busy timeout does not apply to this.
    ends = monotonic() + _BUSY_SECONDS
    while True:
        try:
            await driver_connection.execute_fetchall("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as failure:
            if failure.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or monotonic() > ends:
                raise
            await asyncio.sleep(_BUSY_AGAIN_SECONDS)


def _postgres_engine(
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
    event.listen(engine.sync_engine, "handle_error", _reconnect_if_read_only)
    return engine


def _reconnect_if_read_only(context: ExceptionContext) -> None:
    # The server of a connection that only reads may follow another one for good.
    failure = context.original_exception.__cause__
    if isinstance(failure, asyncpg.ReadOnlySQLTransactionError):
        context.is_disconnect = True


_LOCK = 0x63617573  # any number, the same for every process
log = structlog.get_logger(__name__)


class OtherSchema(Exception):
    """The tables are those of another version of the program, and this one cannot serve them."""


class UpgradeStep(Struct, frozen=True):
    """One pending revision: its description, and its SQL unless that depends on the rows."""

    revision: str
    words: str
    statements: Sequence[str] = ()


class UpgradePlan(Struct, frozen=True):
    """Changes that an upgrade would make.

    ``revision`` is the present one, unset without tables. Afterwards versions that know the
    revision ``served_from`` serve the tables; ``returns``: so does one that has the present ones.
    """

    revision: str | None
    steps: Sequence[UpgradeStep]
    served_from: str
    returns: bool


async def upgrade(database: Database) -> None:
    """Make or migrate the tables, in one transaction under a lock.

    Of several processes that start together, one does the work. Tables of a newer version are left
    as they are if it says that this one can serve them. Raises :class:`OtherSchema`, and
    :class:`~causerie.errors.StoreUnavailable`.
    """
    async with database.migrating() as connection:
        await connection.run_sync(_upgrade_schema)


async def revision(database: Database) -> str | None:
    """Return the revision of the tables; ``None`` without tables."""
    async with database.reading() as connection:
        return await connection.run_sync(_read_current_revision)


async def upgrade_plan(database: Database) -> UpgradePlan:
    """Return the plan of :func:`upgrade` without changing anything; raise the same exceptions."""
    async with database.reading() as connection:
        return await connection.run_sync(_plan_upgrade)


def _upgrade_schema(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
    scripts = ScriptDirectory.from_config(_build_alembic_config(connection))
    if not _is_schema_not_newer_or_raise(connection, scripts):
        return
    if _read_current_revision(connection) is None:
        METADATA.create_all(connection, checkfirst=False)
        command.stamp(_build_alembic_config(connection), "head")
    else:
        command.upgrade(_build_alembic_config(connection), "head")
    oldest = _find_revision_needed_to_serve([*scripts.walk_revisions()])
    values = {"served_from": oldest, "version": __version__}
    column = schema_state.c.served_from
    other = column.is_(None) | (column != values["served_from"])
    connection.execute(update(schema_state).where(other).values(values))


def _is_schema_not_newer_or_raise(connection: Connection, scripts: ScriptDirectory) -> bool:
    # False for tables of a newer version that this one can serve.
    current, every = _read_current_revision(connection), [*scripts.walk_revisions()]
    known = {each.revision for each in every}
    if current is None or current in known:
        return True
    if current < every[-1].revision:
        raise OtherSchema(
            f"the database has revision {current}, from before the first release, and cannot be "
            "taken over: export its configuration with the version that made it "
            "(`causerie export-config`), and start with a new database"
        )
    made_by = "a newer version"
    if inspect(connection).has_table(schema_state.name):
        served_from, version = connection.execute(
            select(schema_state.c.served_from, schema_state.c.version)
        ).one()
        if served_from in known:
            log.warning("the tables are those of a newer version", revision=current, by=version)
            return False
        made_by = f"version {version}, which lets no version without revision {served_from} serve"
    raise OtherSchema(
        f"the database has revision {current} of {made_by}: run the version that made it"
    )


def _find_revision_needed_to_serve(scripts_newest_first: Sequence[Script]) -> str:
    # The newest revision that names one; without any the first revision.
    said = (getattr(each.module, "served_from", None) for each in scripts_newest_first)
    return next((found for found in said if found), scripts_newest_first[-1].revision)


def _plan_upgrade(connection: Connection) -> UpgradePlan:
    scripts = ScriptDirectory.from_config(_build_alembic_config(connection))
    current, newest_first = _read_current_revision(connection), [*scripts.walk_revisions()]
    revisions = [each.revision for each in newest_first]
    now = revisions.index(current) if current in revisions else len(revisions)
    due = newest_first[:now] if _is_schema_not_newer_or_raise(connection, scripts) else []
    steps = [
        UpgradeStep(
            each.revision, each.doc, _render_upgrade_sql(connection, each) if current else ()
        )
        for each in reversed(due)
    ]
    oldest = _find_revision_needed_to_serve(newest_first)
    returns = current not in revisions or now <= revisions.index(oldest)
    return UpgradePlan(current, steps, oldest, returns=returns)


def _render_upgrade_sql(connection: Connection, script: Script) -> Sequence[str]:
    written = StringIO()
    config = _build_alembic_config(connection, written)
    try:
        command.upgrade(config, f"{script.down_revision}:{script.revision}", sql=True)
    except (CommandError, AttributeError, TypeError):  # it depends on the tables, or reads rows
        return ()
    lines = (line for line in written.getvalue().splitlines() if not line.startswith("--"))
    found = [" ".join(each.split()) for each in "\n".join(lines).split(";")]
    ours = ("BEGIN", "COMMIT", "")
    return [each for each in found if each not in ours and "alembic_version" not in each]


def _read_current_revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _build_alembic_config(connection: Connection, sql_output: StringIO | None = None) -> Config:
    config = Config(output_buffer=sql_output)
    config.set_main_option("script_location", "causerie.hosted.store:migrations")
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
