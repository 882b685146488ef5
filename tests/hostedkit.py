"""A hosted service in a process of its own, and what an operator does to its database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from argon2 import PasswordHasher

from causerie.composition.account_backend import opened
from causerie.hosted.accounts.accounts import Accounts
from causerie.hosted.accounts.encryption import Cipher
from causerie.hosted.accounts.issuing import KeyDraft, NewKey
from causerie.hosted.accounts.passwords import Passwords
from causerie.hosted.accounts.people import SYSTEM
from causerie.hosted.accounts.usage import RecordFilter
from causerie.hosted.store.accounts import SqlStore
from causerie.hosted.store.usage import SqlUsageReader
from causerie.metering.ledger import UsageRecord
from causerie.settings.store import StoreSettings

SECRET = "a-key-of-the-tests-with-some-length-to-it"
CONFIG = """
[store]
{url}
folder = "{folder}"
journal = "{journal}"
[[doors]]
name = "hosted"
kind = "hosted"
[[models]]
id = "small"
engine = "fake"
price = {{ prompt = "1000", completion = "2000" }}
[[models]]
id = "other"
engine = "fake"
"""


def config(*, journal: str = "write", url: str | None = None, folder: str = "data") -> str:
    """A hosted door before two scripted models, which say what the user said.

    ``url`` is that of the database, which is a file in ``folder`` without it.
    """
    key = f'secret_keys = [{{ command = ["echo", "{SECRET}"] }}]'
    named = f'url = "{url}"\n{key}' if url is not None else ""
    return CONFIG.format(journal=journal, url=named, folder=folder)


@dataclass(frozen=True, slots=True)
class Office:
    """The database of a service, from outside."""

    accounts: Accounts
    reader: SqlUsageReader
    project: str
    store: SqlStore

    async def key(self, **draft: object) -> NewKey:
        """A new key of the project."""
        made = KeyDraft(**{"name": "key", **draft})
        return await self.accounts.keys.create(SYSTEM, self.project, made)

    async def records(self, limit: int = 1000) -> Sequence[UsageRecord]:
        """The newest."""
        now = datetime.now(UTC)
        whole = RecordFilter(now - timedelta(days=1), now + timedelta(days=1), limit=limit)
        return await self.reader.records(whole)

    async def every_record(self) -> AsyncIterator[UsageRecord]:
        """All there are, newest first."""
        now = datetime.now(UTC)
        page = RecordFilter(now - timedelta(days=1), now + timedelta(days=1), limit=1000)
        while found := await self.reader.records(page):
            for one in found:
                yield one
            page = replace(page, before=(found[-1].at, found[-1].id))


def _secret(folder: Path) -> str:
    """The key that the service of this folder encrypts with."""
    file = folder / "secret.key"
    return file.read_text().strip() if file.exists() else SECRET


@asynccontextmanager
async def office(
    folder: Path, project: str | None = None, url: str | None = None
) -> AsyncIterator[Office]:
    """The database in this folder, or at ``url``, with a project."""
    url = url or f"sqlite:///{folder}/causerie.db"
    async with opened(StoreSettings(url=url, folder=str(folder))) as database:
        seal = Cipher([_secret(folder)])
        hasher = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
        store = SqlStore(database, seal)
        accounts = Accounts(store, Passwords(hasher))
        if project is None:
            project = (await accounts.projects.create(SYSTEM, "Project")).id
        yield Office(accounts, store.usage, project, store)
