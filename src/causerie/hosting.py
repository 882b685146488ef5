"""Accounts in a running service: the database, its keys and budgets, and the ledger.

Opened once with the service and closed after the last request. Nothing here
decides anything about a request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from causerie.accounts.accounts import Accounts
from causerie.accounts.bookkeeping import Bookkeeping
from causerie.accounts.budgets import Budgets
from causerie.accounts.free_days import FreeDays
from causerie.accounts.guard import Clock
from causerie.accounts.passwords import Passwords
from causerie.accounts.recorder import Recorder
from causerie.accounts.ring import KeyRing, RingOptions
from causerie.accounts.seal import Seal, WrongKey
from causerie.accounts.statement import Statements
from causerie.accounts.together import Together
from causerie.edge.ownership import owned
from causerie.errors import StoreUnavailable
from causerie.metering.journal import FileJournal, JournalTaken
from causerie.metering.ledger import Ledger
from causerie.settings import Store
from causerie.startup import CannotStart
from causerie.store.accounts import SqlStore
from causerie.store.database import Database
from causerie.store.key_file import key_of_file
from causerie.store.reports import SqlUsageReader
from causerie.store.schema import NewerSchema, upgrade
from causerie.store.sealing import seal_secrets
from causerie.store.tls import WrongAddress
from causerie.store.usage import SqlUsage


@dataclass(frozen=True, slots=True)
class Hosting:
    """What the request path, the console and the management API have of accounts."""

    accounts: Accounts
    ring: KeyRing
    books: Bookkeeping
    free_days: FreeDays
    statements: Statements
    clock: Clock


@asynccontextmanager
async def hosting(
    store: Store,
    secret_keys: Sequence[str] = (),
    together: Together | None = None,
) -> AsyncIterator[Hosting]:
    """Accounts, ready to be used; leaving writes what waits and closes the database.

    ``secret_keys`` encrypt secrets of people; without any there is a file with
    one. ``together`` is where replicas hold budgets, if they do. Raises
    :class:`CannotStart` where the database or the folder cannot be used, or what
    is encrypted cannot be read.
    """
    async with AsyncExitStack() as stack:
        database = await opened(store)
        stack.push_async_callback(database.close)
        seal = await sealed(database, store, secret_keys)
        sql, reader = SqlStore(database, seal), SqlUsageReader(database)
        ring = KeyRing(sql, RingOptions(offline_seconds=store.offline_seconds))
        journal = _journal(store)
        if journal is not None:
            stack.callback(journal.close)
        ledger = Ledger(SqlUsage(database), journal)
        budgets, recorder = Budgets(reader, time.time_ns, together=together), Recorder(sql, _clock)
        try:
            await stack.enter_async_context(ledger)
            await stack.enter_async_context(ring)
        except StoreUnavailable as failure:
            raise CannotStart(f"the database cannot be used: {failure}") from failure
        _ = await stack.enter_async_context(owned(budgets.follow()))
        _ = await stack.enter_async_context(owned(recorder.sweep()))
        _ = await stack.enter_async_context(recorder)
        accounts = Accounts.over(sql, reader, Passwords(), _clock)
        books = Bookkeeping(ledger, budgets, recorder)
        free_days = FreeDays(sql, reader, _clock, time.monotonic)
        statements = Statements(sql, reader, _clock, free_days)
        yield Hosting(accounts, ring, books, free_days, statements, _clock)


@asynccontextmanager
async def accounts_of(store: Store) -> AsyncIterator[Accounts]:
    """Accounts alone, also beside a service that runs; leaving closes the database.

    Raises :class:`CannotStart` where the database or the folder cannot be used.
    """
    database = await opened(store)
    try:
        yield Accounts.over(SqlStore(database), SqlUsageReader(database), Passwords(), _clock)
    finally:
        await database.close()


async def opened(store: Store) -> Database:
    """The database with its tables as this version has them; the caller closes it.

    Raises :class:`CannotStart`.
    """
    database = await asyncio.to_thread(_database, store)
    try:
        await upgrade(database)
    except (NewerSchema, StoreUnavailable) as failure:
        await database.close()
        raise CannotStart(f"the database cannot be used: {failure}") from failure
    return database


async def sealed(database: Database, store: Store, secret_keys: Sequence[str]) -> Seal:
    """The keys of the database, with everything encrypted by the first of them.

    Raises :class:`CannotStart`.
    """
    keys = secret_keys or [await asyncio.to_thread(_key_of_file, store)]
    try:
        seal = Seal(keys)
        await seal_secrets(database, seal)
    except (WrongKey, ValueError) as failure:
        raise CannotStart(
            f"{failure} (store.secret_keys; without them, `secret.key` in store.folder)"
        ) from failure
    except StoreUnavailable as failure:
        raise CannotStart(f"the database cannot be used: {failure}") from failure
    return seal


def _key_of_file(store: Store) -> str:
    file = Path(store.folder or ".") / "secret.key"
    try:
        return key_of_file(file)
    except OSError as failure:
        raise CannotStart(f"{file} cannot be used: {failure.strerror}") from failure
    except ValueError as failure:
        raise CannotStart(f"{file}: {failure}") from failure


def _database(store: Store) -> Database:
    folder = Path(store.folder or ".")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Database(store.url or "")
    except OSError as failure:
        raise CannotStart(f"{folder} cannot be used: {failure.strerror}") from failure
    except WrongAddress as failure:
        raise CannotStart(f"store.url: {failure}") from failure


def _journal(store: Store) -> FileJournal | None:
    if store.journal == "off":
        return None
    folder = Path(store.folder or ".") / "journal"
    try:
        return FileJournal(folder, sync=store.journal == "sync")
    except JournalTaken as failure:
        raise CannotStart(f"{failure} (store.folder)") from failure
    except OSError as failure:
        raise CannotStart(f"{folder} cannot be used: {failure.strerror}") from failure


def _clock() -> datetime:
    return datetime.now(UTC)
