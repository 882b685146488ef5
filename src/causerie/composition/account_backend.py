"""The accounts of a running service: database, keys, budgets, ledger, and their alerts."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path

from msgspec import Struct

from causerie.access.shared_budgets import SharedBudgetStore
from causerie.composition.alerting import mail_server
from causerie.composition.control import WorkerPlace
from causerie.composition.startup import CannotStart
from causerie.errors import StoreUnavailable
from causerie.hosted.accounts.accounts import Accounts
from causerie.hosted.accounts.authorization import Clock
from causerie.hosted.accounts.bookkeeping import Bookkeeping
from causerie.hosted.accounts.bounds import Unit
from causerie.hosted.accounts.budgets import Budgets
from causerie.hosted.accounts.encryption import Cipher, WrongKey, key_of_file
from causerie.hosted.accounts.key_cache import KeyCache
from causerie.hosted.accounts.operating import Entries
from causerie.hosted.accounts.passwords import Passwords
from causerie.hosted.accounts.recordings import Recorder, Retention
from causerie.hosted.accounts.spending import (
    ExpiringKey,
    LiveScopeBudgets,
    ScopeBudgets,
    WatchedBalance,
    WatchedBudget,
    Watching,
)
from causerie.hosted.accounts.statement import FreeAllowances, Statements
from causerie.hosted.operations.probes import Examinations, Results
from causerie.hosted.store.accounts import SqlStore
from causerie.hosted.store.database import (
    Database,
    OtherSchema,
    UpgradePlan,
    WrongAddress,
    obstacle_of,
    revision,
    upgrade,
    upgrade_plan,
)
from causerie.hosted.store.encrypted import holds_secrets, seal_secrets
from causerie.hosted.store.operations import (
    SqlAlertBook,
    SqlMeasurements,
    SqlProbeResults,
    SqlRetention,
)
from causerie.hosted.store.usage import SqlUsage
from causerie.http.tasks import owned
from causerie.metering.ledger import Ledger
from causerie.metering.write_ahead_log import WriteAheadLog, WriteAheadLogTaken
from causerie.observe.alerts import AlertBook, AlertKind, Condition
from causerie.observe.logging import Outage
from causerie.observe.mail import Outbox
from causerie.observe.metrics import StoreStatus
from causerie.protocol.money import exact
from causerie.settings.alerts import Alerts, Mail
from causerie.settings.credentials import Credentials
from causerie.settings.store import StoreSettings
from causerie.settings.tree import Settings

_DAY = timedelta(days=1)
present_time: Clock = partial(datetime.now, UTC)
_SHARES = (0, 50, 80, 100)  # percent of a budget that metrics tell apart


class AccountConditions(Struct):
    """Finds alert conditions of accounts: budgets used to a share, low credits, expiring keys."""

    book: AlertBook
    _watched_accounts: Watching
    _scope_budgets: ScopeBudgets
    _clock: Clock
    budgets: Mapping[tuple[str, str], int] = {}
    """Number of budgets at the last look, by owner and the share that is used at least."""
    low_balance: Decimal = Decimal(0)
    """Balance of credits below which the owners of a project are reminded."""

    async def look(self, alerts: Alerts) -> Sequence[Condition]:
        """Return the alert conditions of accounts that hold now; raise ``StoreUnavailable``."""
        now = self._clock()
        budgets: list[WatchedBudget] = []
        if alerts.budget_percent:
            scopes = await self._scope_budgets.every()
            budgets += await self._watched_accounts.budgets()
            budgets += [
                WatchedBudget(
                    f"{each.kind}:{each.name}", f"{each.kind.capitalize()} {each.name}", one
                )
                for each in scopes
                for one in each.spending
            ]
        self.budgets = Counter(
            (each.owner.partition(":")[0], str(share))
            for each in budgets
            for share in _SHARES
            if each.spending.budget.amount and share <= each.spending.share * 100
        )
        balances = await self._watched_accounts.balances() if self.low_balance else ()
        days = max(alerts.key_expiry_days, default=0)
        expiring = await self._watched_accounts.expiring(now + days * _DAY) if days else ()
        found = [
            *(_build_budget_alert(each, alerts.budget_percent, now) for each in budgets),
            *(_build_balance_alert(each) for each in balances if each.left < self.low_balance),
            *(_build_key_expiry_alert(each, alerts.key_expiry_days, now) for each in expiring),
        ]
        return [each for each in found if each is not None]


def _build_budget_alert(
    watched: WatchedBudget, threshold_percents: Sequence[int], now: datetime
) -> Condition | None:
    spending, budget = watched.spending, watched.spending.budget
    percent = int(spending.share * 100)
    reached = [each for each in threshold_percents if percent >= each]
    if budget.amount == 0 or not reached:
        return None
    model = f" for model {budget.model}" if budget.model else ""
    since = budget.period.start(now)
    key = f"budget:{watched.owner}:{budget.model}:{budget.unit}:{budget.period}:{since:%Y%m%d}"
    spent = exact(spending.spent) if budget.unit is Unit.MONEY else f"{int(spending.spent):,}"
    details = {
        "owner": watched.owner,
        "model": budget.model,
        "budget": budget.words(),
        "spent": spent,
        "percent": str(percent),
        "threshold": str(max(reached)),
        "resets_at": spending.resets_at.isoformat() if spending.resets_at else "",
    }
    kind = "soft limit" if budget.soft else "budget"
    summary = f"{watched.whose} has used {percent} % of its {kind}{model} ({budget.words()})"
    return Condition(
        *(key, AlertKind.BUDGET, summary, {name: each for name, each in details.items() if each}),
        level=max(reached),
        recovers=False,
        owners=watched.emails,
    )


def _build_balance_alert(balance: WatchedBalance) -> Condition:
    project, left = balance.project, exact(max(balance.left, Decimal(0)))
    return Condition(
        f"credits:{project.id}",
        AlertKind.BUDGET,
        f"Project {project.name} has {left} of credits left",
        {"owner": f"project:{project.id}", "left": left},
        owners=balance.emails,
    )


def _build_key_expiry_alert(
    expiring: ExpiringKey, threshold_days: Sequence[int], now: datetime
) -> Condition | None:
    left = expiring.expires_at - now
    reached = [each for each in threshold_days if left <= each * _DAY]
    if not reached:
        return None
    key, at = expiring.key, expiring.expires_at
    rest = math.ceil(left / _DAY)
    when = f"{rest} days" if rest > 1 else "a day or less"
    summary = f'Key "{key.name}" ({key.id}) of project {expiring.project.name} expires in {when}'
    return Condition(
        f"key_expiry:{key.id}:{at:%Y%m%dT%H%M%S}",
        AlertKind.KEY_EXPIRY,
        summary,
        {"owner": f"key:{key.id}", "project": key.project_id, "expires_at": at.isoformat()},
        level=max(threshold_days) + 1 - min(reached),
        recovers=False,
        owners=expiring.emails,
    )


_WHERE_KEYS = "store.secret_keys; without them, `secret.key` in store.folder"


class AccountBackend(Struct, frozen=True):
    """The parts behind accounts that requests, the console and the management API use."""

    accounts: Accounts
    key_cache: KeyCache
    bookkeeping: Bookkeeping
    free_days: FreeAllowances
    statements: Statements
    conditions: AccountConditions
    outage: Outage
    store: SqlStore
    retention: Retention
    measurements: SqlMeasurements
    examinations: Examinations
    outbox: Outbox | None

    def store_status(self) -> StoreStatus:
        """Return the state of the database and the ledger for the metrics."""
        there, ledger = not self.outage.lasts, self.bookkeeping.ledger
        return StoreStatus(there, not ledger.journal_fails, ledger.waiting, self.conditions.budgets)


@asynccontextmanager
async def account_backend(
    settings: Settings,
    credentials: Credentials,
    shared_budgets: SharedBudgetStore | None = None,
    place: WorkerPlace | None = None,
) -> AsyncIterator[AccountBackend]:
    """Open database, keys, ledger and mail while the block runs; raise :class:`CannotStart`."""
    store = settings.store
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(opened(store))
        sql = SqlStore(database, await sealed(database, store, credentials.store))
        key_cache = KeyCache(sql, offline_seconds=store.offline_seconds)
        write_ahead_log = _open_write_ahead_log(store, 1 if place is None else place.number)
        if write_ahead_log is not None:
            stack.callback(write_ahead_log.close)
        ledger = Ledger(SqlUsage(database), write_ahead_log)
        budgets = Budgets(sql.usage.spent, time.time_ns, shared_budgets=shared_budgets)
        accounts = Accounts(sql, Passwords())
        scope_budgets = LiveScopeBudgets(accounts.scope_budgets, present_time)
        recorder, retention = Recorder(sql), Retention(SqlRetention(database), present_time)
        with _translate_store_errors():
            await stack.enter_async_context(ledger)
            if place is None or place.number == 1:
                await _import_orphan_journals(database, store, 1 if place is None else place.count)
            await stack.enter_async_context(key_cache)
        scopes = scope_budgets.follow(key_cache.scopes_changed)
        for follow in (budgets.follow(), scopes, retention.follow()):
            _ = await stack.enter_async_context(owned(follow))
        _ = await stack.enter_async_context(recorder)
        examinations = Examinations(Results(SqlProbeResults(database)), present_time)
        _ = await stack.enter_async_context(examinations)
        outbox = await stack.enter_async_context(_open_mail_outbox(settings.mail, credentials.mail))
        free_days = FreeAllowances(sql, time.monotonic)
        yield AccountBackend(
            accounts,
            key_cache,
            Bookkeeping(ledger, budgets, recorder, scope_budgets),
            free_days,
            Statements(sql, free_days),
            AccountConditions(
                SqlAlertBook(database), Watching(sql), accounts.scope_budgets, present_time
            ),
            database.outage,
            sql,
            retention,
            SqlMeasurements(database),
            examinations,
            outbox,
        )


@asynccontextmanager
async def _open_mail_outbox(settings: Mail, password: str | None) -> AsyncIterator[Outbox | None]:
    server = mail_server(settings, password)
    if server is None:
        yield None
        return
    outbox = Outbox(server)
    async with owned(outbox.deliver()):
        yield outbox


@asynccontextmanager
async def accounts_of(store: StoreSettings) -> AsyncIterator[Accounts]:
    """Open accounts alone, also beside a running service. Raises :class:`CannotStart`."""
    async with opened(store) as database:
        yield Accounts(SqlStore(database), Passwords())


@asynccontextmanager
async def entries_of(
    store: StoreSettings, secret_keys: Sequence[str] = (), *, complete: bool = False
) -> AsyncIterator[Entries]:
    """Open the configuration entries alone. Raises :class:`CannotStart`.

    A credential that cannot be decrypted is an error only if entries must be ``complete``.
    """
    async with opened(store) as database:
        cipher = await sealed(database, store, secret_keys, complete=complete)
        with _translate_store_errors():
            yield Entries(SqlStore(database, cipher))


async def migrated(store: StoreSettings) -> str:
    """Bring the tables to this version and return their revision; raise :class:`CannotStart`."""
    async with opened(store) as database:
        return await revision(database) or ""


async def planned(store: StoreSettings) -> UpgradePlan:
    """Return what :func:`migrated` would do; raise :class:`CannotStart`."""
    database = await asyncio.to_thread(_make_database_handle, store)
    try:
        with _translate_store_errors():
            return await upgrade_plan(database)
    finally:
        await database.close()


@asynccontextmanager
async def opened(store: StoreSettings) -> AsyncIterator[Database]:
    """Open the database and update its tables; raise :class:`CannotStart`."""
    database = await asyncio.to_thread(_make_database_handle, store)
    try:
        with _translate_store_errors():
            await upgrade(database)
        yield database
    finally:
        await database.close()


async def sealed(
    database: Database, store: StoreSettings, secret_keys: Sequence[str], *, complete: bool = True
) -> Cipher:
    """Encrypt stored secrets by the first key, return the cipher; raise :class:`CannotStart`.

    A credential that cannot be decrypted is an error only if all must be ``complete``.
    """
    file = Path(store.folder or ".") / "secret.key"
    made = not secret_keys and not file.exists()
    with _translate_store_errors():
        if complete and made and await holds_secrets(database):
            raise CannotStart(
                f"{file} is missing, and what the database holds was encrypted with "
                "its key; restore the file (or set store.secret_keys)"
            )
        try:
            cipher = Cipher(secret_keys or [await asyncio.to_thread(_ensure_secret_key, file)])
            _, unopened = await seal_secrets(database, cipher)
        except (WrongKey, ValueError) as failure:
            raise CannotStart(f"{failure} ({_WHERE_KEYS})") from failure
    if complete and unopened:
        raise CannotStart(
            f"the keys of these entries were encrypted with another key: {', '.join(unopened)}; "
            f"give the right one ({_WHERE_KEYS}), or what they hold anew with `causerie import`"
        )
    return cipher


def _ensure_secret_key(path: Path) -> str:
    try:
        return key_of_file(path)
    except OSError as failure:
        raise CannotStart(f"{path} cannot be used: {failure.strerror}") from failure
    except ValueError as failure:
        raise CannotStart(f"{path}: {failure}") from failure


def _make_database_handle(settings: StoreSettings) -> Database:
    folder = Path(settings.folder or ".")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Database(settings.url or "")
    except OSError as failure:
        place = failure.filename or folder
        raise CannotStart(f"{place} cannot be used: {failure.strerror}") from failure
    except WrongAddress as failure:
        raise CannotStart(f"store.url: {failure}") from failure


@contextmanager
def _translate_store_errors() -> Iterator[None]:
    try:
        yield
    except (OtherSchema, StoreUnavailable) as failure:
        words = f"the database cannot be used: {obstacle_of(failure)} (store.url)"
        raise CannotStart(words) from failure


async def _import_orphan_journals(
    database: Database, settings: StoreSettings, worker_count: int
) -> None:
    found = _journal_folder(settings).glob("[0-9]*")
    for number in sorted(int(each.name) for each in found if each.name.isdecimal()):
        if number > worker_count and (left := _open_write_ahead_log(settings, number)) is not None:
            async with Ledger(SqlUsage(database), left):
                pass
            left.close()


def _journal_folder(settings: StoreSettings) -> Path:
    return Path(settings.folder or ".") / "journal"


def _open_write_ahead_log(settings: StoreSettings, worker_number: int) -> WriteAheadLog | None:
    # The journal of the first worker is that of a service of one process.
    if settings.journal == "off":
        return None
    folder = _journal_folder(settings) / (str(worker_number) if worker_number > 1 else "")
    try:
        return WriteAheadLog(folder, sync=settings.journal == "sync")
    except WriteAheadLogTaken as failure:
        raise CannotStart(
            f"{failure}; stop that one, or give this one a folder of its own (store.folder)"
        ) from failure
    except OSError as failure:
        raise CannotStart(f"{folder} cannot be used: {failure.strerror}") from failure
