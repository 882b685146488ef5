"""Data of every earlier version, brought up to date: each row keeps its meaning.

Every table is filled as it was then; a new table or a new step is filled here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from accountkit import Door
from hostedkit import SECRET
from sqlalchemy import MetaData, Table, delete, func, insert, select
from sqlalchemy.types import Uuid

from causerie.access.credential import Credential
from causerie.access.quota import Tokens
from causerie.accounts.audit import AuditFilter
from causerie.accounts.bounds import Budget, BudgetPeriod, Limit, LimitsAndBudgets, Unit
from causerie.accounts.encryption import Cipher
from causerie.accounts.key_cache import AccountCaller
from causerie.accounts.keys import new_secret
from causerie.accounts.links import LinkKind
from causerie.accounts.names import digest
from causerie.accounts.people import Role
from causerie.accounts.prices import ModelPrices, TokenPrice
from causerie.accounts.recording import Recording
from causerie.accounts.usage import By, RecordFilter, Step, UsageQuery
from causerie.composition.account_backend import AccountBackend, account_backend
from causerie.errors import OverBudget, Unauthenticated
from causerie.metering.meter import Record
from causerie.protocol.events import Usage
from causerie.settings import StoreSettings
from causerie.store.accounts import SqlRepositories, SqlStore
from causerie.store.columns import moment_of
from causerie.store.database import Database
from causerie.store.latency import bucket_of, upper_bound
from causerie.store.reports import SqlUsageReader
from causerie.store.schema import upgrade
from causerie.store.tables import METADATA, usage_first_token

BEFORE = "0012"  # the revision that the version before knows
STEPS = [f"{number:04}" for number in range(1, 12)]
HOUR, DAY = 3_600_000_000, 86_400_000_000
MIDNIGHT = 1_795_219_200_000_000  # 2026-11-21, in microseconds
AT = MIDNIGHT + 12 * HOUR
FAR = MIDNIGHT + 36_500 * DAY
BUCKET = bucket_of(15_000)
KEY, OTHER = new_secret("ck_aaaaaaaaaaaa"), new_secret("ck_bbbbbbbbbbbb")
ID, LATER = "01900000-0000-7000-8000-000000000000", "01900000-0000-7000-8000-000000000001"
SEAL = Cipher([SECRET])

_PLACE = {"project_id": "prj_a", "key_id": "ck_aaaaaaaaaaaa", "user_id": "usr_a", "model": "small"}
_OTHER = _PLACE | {"key_id": "ck_bbbbbbbbbbbb"}
_USED = {"prompt": 100, "cached": 40, "completion": 20, "reasoning": 5, "cost": 123_456}
_SUM = _USED | {"requests": 1, "refused": 0, "failed": 0, "aborted": 0, "charged": 120}
_SUM |= {"first_token_us": 15_000, "first_tokens": 1, "duration_us": 200_000}
_FAILED = _SUM | {"requests": 2, "failed": 2, "cost": 0, "charged": 240, "completion": 140}
_SUMS = (_SUM | _PLACE, _FAILED | _OTHER)
_RECORD = _PLACE | _USED | {"id": ID, "request_id": "chatcmpl-1", "at": AT, "door": "hosted"}
_RECORD |= {"served_by": "small", "stream": True, "status": 200, "code": None, "finish": "stop"}
_RECORD |= {"attempts": 2, "queue_us": 1, "first_token_us": 15_000, "duration_us": 200_000}
_RECORD |= {"upstream_us": 7, "continued": 1, "estimated": True, "tried": '["near: away"]'}
_RECORD |= {"reason": "It took long.", "param": "messages", "app": "Robot", "referer": "http://r/"}
_RECORD |= {"cache_miss": "tools changed", "tag": "evaluation"}
_ALERT = {"kind": "budget", "summary": "Key a has used 80 %", "details": '{"percent": "80"}'}
_MADE = {"created_at": AT, "disabled_at": None}

ROWS: Mapping[str, list[dict[str, Any]]] = {
    "users": [
        _MADE
        | {"id": "usr_a", "email": "ada@example.org", "name": "Ada", "password": "$argon2id$"}
        | {"operator": True, "operator_group": ""}
    ],
    "identities": [{"issuer": "https://i", "subject": "7", "user_id": "usr_a", "linked_at": AT}],
    "projects": [
        {"id": "prj_a", "name": "A", "created_at": AT, "archived_at": None, "recording_days": 30}
    ],
    "memberships": [
        {"project_id": "prj_a", "user_id": "usr_a", "role": "owner", "since": AT}
        | {"from_group": ""}
    ],
    "alerts": [
        _ALERT
        | {"key": "budget:key:a", "level": 80, "recovers": False}
        | {"since": AT, "seen_at": AT, "resolved_at": None}
    ],
    "alert_deliveries": [
        _ALERT
        | {"id": "msg_a", "channel": "ops", "to": "", "firing": True, "at": AT}
        | {"state": "delivered", "attempts": 1, "next_at": None, "outcome": "It took it."}
    ],
    "probe_results": [{"provider": "north", "model": "m", "kept": "{}"}],
    "departures": [{"project_id": "prj_a", "user_id": "usr_a", "at": AT}],
    "one_time_links": [
        {"id": "lnk_a", "kind": "invitation", "digest": digest("link"), "email": "b@example.org"}
        | {"project_id": "prj_a", "role": "member", "operator": False, "user_id": None}
        | {"created_by": "user:usr_a", "created_at": AT, "expires_at": FAR, "used_at": None}
        | {"person": "usr_a"}
    ],
    "sessions": [
        {"id": "ses_a", "digest": digest("session"), "user_id": "usr_a", "stage": "open"}
        | {"created_at": AT, "seen_at": AT, "expires_at": FAR, "address": "::1", "agent": "Mozilla"}
    ],
    "totp": [
        {"user_id": "usr_a", "confirmed_at": AT, "last_step": 9}
        | {"secret": SEAL.seal("JBSWY3DPEHPK3PXP", "totp:usr_a")}
    ],
    "recovery_codes": [{"user_id": "usr_a", "digest": digest("code")}],
    "attempts": [{"scope": "address:::1", "failures": 3, "last_at": AT}],
    "audit": [
        {"id": 1, "at": AT, "actor": "usr_a", "actor_name": "Ada", "action": "key.create"}
        | {"project_id": "prj_a", "subject": "ck_aaaaaaaaaaaa", "details": '{"name":"robot"}'}
    ],
    "api_keys": [
        _MADE
        | {"id": "ck_aaaaaaaaaaaa", "project_id": "prj_a", "created_by": "usr_a", "name": "robot"}
        | {"purpose": "inference", "doors": '["hosted"]', "models": None, "expires_at": FAR}
        | {"disabled_by": None, "deleted_at": None, "person": "usr_a", "withdrawn_at": None},
        _MADE
        | {"id": "ck_bbbbbbbbbbbb", "project_id": "prj_a", "created_by": "usr_a", "name": "off"}
        | {"purpose": "management", "doors": None, "models": "[]", "expires_at": None}
        | {"disabled_by": "usr_a", "deleted_at": None, "disabled_at": AT}
        | {"person": "usr_a", "withdrawn_at": None},
    ],
    "key_secrets": [
        {"digest": digest(KEY), "key_id": "ck_aaaaaaaaaaaa", "expires_at": None},
        {"digest": digest(OTHER), "key_id": "ck_bbbbbbbbbbbb", "expires_at": FAR},
    ],
    "limits": [
        {"owner": "key:ck_aaaaaaaaaaaa", "model": "", "requests_per_minute": 60, "concurrent": 4}
        | dict.fromkeys(("tokens_per_minute", "input_tokens_per_minute"))
        | {"output_tokens_per_minute": None}
    ],
    "budgets": [
        {"owner": "key:ck_aaaaaaaaaaaa", "model": "", "unit": "tokens", "period": "never"}
        | {"amount": 130},
        {"owner": "project:prj_a", "model": "", "unit": "money", "period": "never"}
        | {"amount": 9_000_000_000_000_000_000},
    ],
    "credits": [
        {"id": "crd_a", "project_id": "prj_a", "amount": 10_500_000_000, "at": AT, "by": "usr_a"}
        | {"note": "first"}
    ],
    "change_counter": [{"id": 1, "number": 41}],
    "changes": [{"number": 41, "subject": "project:prj_a", "at": AT}],
    "usage_records": [
        _RECORD,
        _RECORD
        | {"id": LATER, "key_id": "ck_bbbbbbbbbbbb", "status": 502, "code": "bad_gateway"}
        | {"finish": None, "cost": 0},
    ],
    "usage_hourly": [each | {"start": AT, "door": "hosted"} for each in _SUMS],
    "usage_daily": [each | {"start": MIDNIGHT, "door": "hosted"} for each in _SUMS],
    "usage_apps": [
        _SUM | {"project_id": "prj_a", "start": AT, "app": "", "model": "small", "requests": 3}
    ],
    "usage_tags": [
        _SUM
        | {"project_id": "prj_a", "start": AT, "tag": "", "user_id": "usr_a", "model": "small"}
        | {"requests": 3}
    ],
    "usage_targets": [
        _SUM | {"project_id": "prj_a", "start": AT, "model": "small", "served_by": "north/small"}
    ],
    "usage_first_token": [_PLACE | {"start": AT, "bucket": BUCKET, "requests": 3}],
    "recordings": [
        {"id": ID, "project_id": "prj_a", "user_id": "usr_a", "at": AT, "expires_at": FAR}
        | {"request": SEAL.seal("{}", f"request:{ID}"), "request_cut": False}
        | {"reply": SEAL.seal("Hi.", f"reply:{ID}"), "reply_cut": True}
    ],
    "configuration_entries": [
        {"id": "cfg_a", "kind": "provider", "name": "north", "body": '{"known":"openai"}'}
        | {"credential": SEAL.seal("sk-secret", "configuration:cfg_a"), "enabled": True}
        | {"version": 2, "created_at": AT, "created_by": "user:usr_a"}
        | {"updated_at": AT, "updated_by": "user:usr_a"}
    ],
}


async def known(database: Database) -> list[Table]:
    """Every table as it is now."""
    found = MetaData()
    async with database.reading() as connection:
        await connection.run_sync(found.reflect, only=lambda name, _: name in METADATA.tables)
    return found.sorted_tables


async def filled(database: Database, tables: list[Table] | None = None) -> list[Table]:
    """The tables, as they are now unless they are given, with the rows as far as they have
    columns for them."""
    tables = tables or await known(database)
    async with database.writing() as connection:
        for table in tables:
            if table.name == "change_counter":  # which the step has started
                await connection.execute(delete(table))
            for row in ROWS[table.name]:
                values = {each.name: _stored(each.type, row[each.name]) for each in table.c}
                await connection.execute(insert(table).values(values))
    return tables


def _stored(kind: object, value: Any) -> Any:
    if value not in (ID, LATER):
        return value
    return UUID(value) if isinstance(kind, Uuid) else value.replace("-", "")


async def rows(database: Database, tables: Iterable[Table]) -> dict[str, list[str]]:
    """Return the present contents of these columns."""
    async with database.reading() as connection:
        return {
            table.name: sorted(map(str, await connection.execute(select(table))))
            for table in tables
        }


def test_every_table_is_filled() -> None:
    assert set(ROWS) == set(METADATA.tables)
    for name, each in ROWS.items():
        assert all(set(row) == set(METADATA.tables[name].c.keys()) for row in each), name


@pytest.mark.parametrize("step", STEPS)
async def test_a_service_goes_on_where_a_version_before_has_left_off(
    bare: Database, store_url: str, step: str, tmp_path: Path
) -> None:
    await upgrade(bare, step)
    tables = await filled(bare)
    counted = [each for each in tables if each.name == "usage_first_token"]  # is told apart more
    others = [each for each in tables if each not in counted]
    before = await rows(bare, others)
    async with account_backend(
        StoreSettings(url=store_url, folder=str(tmp_path), journal="off"), [SECRET]
    ) as here:
        assert await rows(bare, others) == before
        if counted:
            async with bare.reading() as connection:
                assert await connection.scalar(select(func.sum(usage_first_token.c.requests))) == 3
        async with SqlStore(bare, SEAL).writing() as bookkeeping:
            await _people_are_who_they_were(bookkeeping)
            await _what_was_said_is_kept(bookkeeping, step)
        if step >= "0002":
            await _requests_are_charged(here, step)
        if step >= "0003":
            await _usage_is_shown(SqlUsageReader(bare), step, By.KEY, By.APP, By.TAG)


async def test_the_version_before_writes_what_this_one_reads(bare: Database) -> None:
    """In an upgrade that goes replica by replica both run, on the tables of the newer one."""
    await upgrade(bare, BEFORE)
    tables = await known(bare)
    await upgrade(bare)
    await filled(bare, tables)
    assert {name for name, each in (await rows(bare, tables)).items() if not each} == set()
    async with SqlStore(bare, SEAL).writing() as bookkeeping:
        await _people_are_who_they_were(bookkeeping)
        await _what_was_said_is_kept(bookkeeping, BEFORE)
    await _usage_is_shown(SqlUsageReader(bare), BEFORE, By.KEY, By.APP)


async def _people_are_who_they_were(bookkeeping: SqlRepositories) -> None:
    user = await bookkeeping.people.by_email("ada@example.org")
    assert user is not None
    assert (user.id, user.name, user.operator, user.created_at) == (
        *("usr_a", "Ada", True),
        moment_of(AT),
    )
    assert await bookkeeping.people.by_identity("https://i", "7") == user
    [[project, membership]] = await bookkeeping.projects.of("usr_a")
    assert (project.name, project.archived_at, membership.role) == ("A", None, Role.OWNER)
    session = await bookkeeping.sessions.by_digest(digest("session"))
    assert session is not None
    assert session.good(moment_of(AT))
    factor = await bookkeeping.factors.find("usr_a")
    assert factor is not None
    assert factor.secret == "JBSWY3DPEHPK3PXP"
    assert await bookkeeping.attempts.lock(["address:::1"], moment_of(AT))
    link = await bookkeeping.links.by_digest(digest("link"))
    assert link is not None
    assert (link.kind, link.role, link.used_at) == (LinkKind.INVITATION, Role.MEMBER, None)
    assert link.person == "usr_a"
    [entry] = await bookkeeping.audit.find(AuditFilter(project_id="prj_a"))
    assert (entry.at, entry.details) == (moment_of(AT), {"name": "robot"})


async def _what_was_said_is_kept(bookkeeping: SqlRepositories, step: str) -> None:
    said = Recording(ID, "prj_a", "usr_a", moment_of(AT), "{}", False, "Hi.", True)
    assert await bookkeeping.recordings.find(ID, moment_of(AT)) == (
        said if step >= "0006" else None
    )


async def _requests_are_charged(hosted: AccountBackend, step: str) -> None:
    """One that a key may still make; then its budget is spent, with what it has used before."""
    with pytest.raises(Unauthenticated):
        await hosted.key_cache.authenticate(Door(), Credential.of(OTHER))
    caller = await hosted.key_cache.authenticate(Door(), Credential.of(KEY))
    assert isinstance(caller, AccountCaller)
    assert caller.grant.key.bounds == LimitsAndBudgets(
        (Limit(requests_per_minute=60, concurrent=4),),
        (Budget(Decimal(130), BudgetPeriod.NEVER, Unit.TOKENS),),
    )
    most = Decimal(9_000_000_000) if step < "0005" else Decimal("10.5")
    assert caller.grant.project_bounds.budgets == (Budget(most, BudgetPeriod.NEVER, Unit.MONEY),)
    assert caller.recorded is (step >= "0006")
    hosted.bookkeeping.prices = ModelPrices({"small": TokenPrice(request=Decimal(1))})
    used = 10 if step >= "0003" else 130
    record = Record("r", "hosted", caller.key, "small", status=200, code=None)
    record.project, record.used = caller.project, Usage(used - 1, 1)
    record.held = await hosted.bookkeeping.reserve(caller, "small", lambda: Tokens(1, 1))
    await hosted.bookkeeping.enter(record)
    with pytest.raises(OverBudget):
        await hosted.bookkeeping.reserve(caller, "small", lambda: Tokens(1, 1))
    told = await hosted.statements.key(caller)
    assert told.usage == (1.000123456 if step >= "0003" else 1.0)


async def _usage_is_shown(reader: SqlUsageReader, step: str, *kinds: By) -> None:
    day = moment_of(MIDNIGHT), moment_of(MIDNIGHT + DAY)
    newest, oldest = await reader.records(RecordFilter(*day))
    assert (newest.id, newest.status, oldest.id, oldest.cost) == (
        *(LATER, 502, ID),
        Decimal("0.000123456"),
    )
    assert oldest.tried == (("near: away",) if step >= "0004" else ())
    assert oldest.app == ("Robot" if step >= "0008" else "")
    for by in kinds:
        sums = await reader.sums(UsageQuery(*day, Step.HOUR, (by,)))
        assert sum(each.requests for each in sums) == 3, by
    [times] = await reader.first_tokens(UsageQuery(*day, Step.ALL), [1.0])
    assert times.times == (upper_bound(BUCKET) / 1e6,)


_KEY = _MADE | {"project_id": "prj_a", "name": "key", "doors": None, "models": None}
_KEY |= {"expires_at": None, "disabled_by": None, "deleted_at": None}


def _old_key(id: str, by: str, purpose: str = "inference", **other: Any) -> dict[str, Any]:
    return _KEY | {"id": id, "created_by": by, "purpose": purpose} | other


OLD_KEYS = {
    "ck_member": _old_key("ck_member", "usr_a"),
    "ck_cli": _old_key("ck_cli", "cli"),
    "ck_kept": _old_key("ck_kept", "usr_gone"),
    "ck_stopped": _old_key("ck_stopped", "usr_gone", disabled_at=AT, disabled_by="usr_a"),
    "ck_manager": _old_key("ck_manager", "usr_gone", "management"),
    "ck_of_manager": _old_key("ck_of_manager", "ck_manager"),
    "ck_hers": _old_key("ck_hers", "usr_a", "management"),
    "ck_of_hers": _old_key("ck_of_hers", "ck_hers"),
}


async def test_keys_of_before_derive_from_whoever_made_them(bare: Database) -> None:
    """Also those that a version before makes alongside this one."""
    await upgrade(bare, "0010")
    gone = ROWS["users"][0] | {"id": "usr_gone", "email": "gone@example.org", "operator": False}
    audit = ROWS["audit"][0] | {"action": "member.remove", "subject": "usr_gone"}
    link = ROWS["one_time_links"][0]
    links = [
        link | {"id": f"lnk_{n}", "digest": digest(by), "created_by": by}
        for n, by in enumerate(["user:usr_a", "user:usr_gone", "key:ck_hers", "system:cli"])
    ]
    late = _old_key("ck_late", "usr_a"), _old_key("ck_late_of", "ck_hers")
    await _inserted(bare, "users", [ROWS["users"][0], gone])
    await _inserted(bare, "projects", ROWS["projects"])
    await _inserted(bare, "memberships", ROWS["memberships"])
    await _inserted(bare, "api_keys", OLD_KEYS.values())
    await _inserted(bare, "audit", [audit])
    await _inserted(bare, "one_time_links", links)
    await upgrade(bare)
    await _inserted(bare, "api_keys", late, without=("person", "withdrawn_at"))
    late_link = link | {"id": "lnk_late", "digest": digest("late"), "created_by": "user:usr_a"}
    await _inserted(bare, "one_time_links", [late_link], without=("person",))
    async with SqlStore(bare, SEAL).writing() as bookkeeping:
        found = {key.id: (key.person, key.withdrawn) for key in await bookkeeping.keys.of("prj_a")}
        assert found == {
            "ck_member": ("usr_a", False),
            "ck_cli": ("", False),
            "ck_kept": ("", False),  # by whoever removed them
            "ck_stopped": ("usr_gone", True),
            "ck_manager": ("usr_gone", True),
            "ck_of_manager": ("usr_gone", True),
            "ck_hers": ("usr_a", False),
            "ck_of_hers": ("usr_a", False),
            "ck_late": ("usr_a", False),
            "ck_late_of": ("usr_a", False),
        }
        assert {key.id for key in await bookkeeping.keys.derived("usr_a")} == {
            id for id, (person, _) in found.items() if person == "usr_a"
        }
        assert await bookkeeping.projects.left("prj_a", "usr_gone") == moment_of(AT)
        derived = [each.id for each in await bookkeeping.links.derived("usr_a", moment_of(AT))]
        assert sorted(derived) == ["lnk_0", "lnk_2", "lnk_late"]
        assert {each.person for each in await bookkeeping.links.open("prj_a", moment_of(AT))} == {
            *("usr_a", "usr_gone", "")
        }


async def _inserted(
    database: Database,
    name: str,
    added: Iterable[Mapping[str, Any]],
    *,
    without: Iterable[str] = (),
) -> None:
    """Rows as a version wrote them that knew the columns there are, but for some."""
    found = MetaData()
    async with database.writing() as connection:
        await connection.run_sync(found.reflect, only=[name])
        table = found.tables[name]
        names = [each.name for each in table.c if each.name not in without]
        for row in added:
            await connection.execute(insert(table).values({each: row[each] for each in names}))
