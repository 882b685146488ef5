"""The database tables, with column types that mean the same on SQLite and PostgreSQL.

Tables of records have a column for each field of the record.
Times and money are whole numbers in the database, so that no driver or column type rounds them.
Usage and the audit log have no foreign keys, because they outlive keys, people and projects. A new
database is made of these tables; a migration brings those of an earlier release to this form.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from functools import partial
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    event,
    text,
)
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeDecorator, TypeEngine

from causerie.access.allowed import Access
from causerie.hosted.accounts.bounds import Budget, Credit, Limit
from causerie.hosted.accounts.keys import ApiKey, KeySecret, OneTimeLink, OperatorKey
from causerie.hosted.accounts.passwords import Authenticator, Failures
from causerie.hosted.accounts.people import (
    IdentityGroup,
    LinkedIdentity,
    Membership,
    Project,
    User,
)
from causerie.hosted.accounts.records import AuditEntry, Recording, StoredEntry
from causerie.hosted.accounts.tokens import Session
from causerie.metering.ledger import UsageRecord
from causerie.observe.alerts import Delivery, StoredAlert
from causerie.protocol.money import amount_of, billionths

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(moment: datetime) -> int:
    """Return a time as microseconds since 1970; raise :class:`ValueError` without a time zone."""
    if moment.tzinfo is None:
        raise ValueError("a moment needs a time zone; use datetime.now(UTC)")
    return (moment - _EPOCH) // _MICROSECOND


def moment_of(stored: int) -> datetime:
    """Return the UTC time that is given as microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=stored)


class ConvertedColumn(TypeDecorator[Any]):
    """Column type that converts values when they are stored and read; ``None`` is ``NULL``."""

    impl: Any = Text
    cache_ok = True

    def __init__(
        self,
        stored: type[TypeEngine[Any]],
        written: Callable[[Any], Any],
        read: Callable[[Any], Any],
    ) -> None:
        super().__init__()
        self.impl = stored()
        self.stored, self.written, self.read = stored, written, read

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else self.written(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else self.read(value)


MOMENT = ConvertedColumn(BigInteger, microseconds, moment_of)
"""A :class:`datetime` with a time zone, stored as microseconds since 1970."""

# Stored as billionths; its sums are money too, of which PostgreSQL makes decimals.
MONEY = ConvertedColumn(BigInteger, billionths, lambda stored: amount_of(int(stored)))


def _encode_json_text(value: Any) -> str:
    plain = sorted(value) if isinstance(value, set | frozenset) else value
    return msgspec.json.encode(plain).decode()


METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _build_table_of_given_columns(table_name: str, *parts: SchemaItem) -> Table:
    return Table(table_name, METADATA, *parts)


def _table_by_owner_and_start(table_name: str, owner_column: str, *parts: SchemaItem) -> Table:
    start = Column("start", BigInteger, primary_key=True, autoincrement=False, index=True)
    return Table(table_name, METADATA, *_primary_key_columns(Text, owner_column), start, *parts)


def _primary_key_columns(type_of_each: Any, *names: str) -> Iterator[Column[Any]]:
    return (Column(name, type_of_each, primary_key=True, autoincrement=False) for name in names)


def _not_null_columns(type_of_each: Any, *names: str) -> Iterator[Column[Any]]:
    return (Column(name, type_of_each, nullable=False) for name in names)


_TYPES: Mapping[Any, Any] = {
    **{str: Text, bool: Boolean, int: BigInteger, bytes: LargeBinary},
    **{datetime: MOMENT, Decimal: MONEY},
}


def _get_type_of_non_null_column(type_hint: Any) -> Any:
    if isinstance(type_hint, type) and issubclass(type_hint, StrEnum):
        return ConvertedColumn(Text, str, type_hint)
    if get_origin(type_hint) is Literal:
        return Text
    if type_hint in _TYPES:
        return _TYPES[type_hint]
    return ConvertedColumn(Text, _encode_json_text, partial(msgspec.json.decode, type=type_hint))


def _table_for(
    record_type: type[Any],
    table_name: str,
    *parts: SchemaItem,
    keys: Collection[str] = ("id",),
    but: Collection[str] = (),
    names: Mapping[str, str] = {},
) -> Table:
    # A column for each field of a record, ``NULL`` where it is ``None``. Columns among the
    # ``parts`` are in place of those of the fields, or come first. Fields of ``but`` have none;
    # ``names`` are those of columns that are not named like their fields.
    given = {each.name: each for each in parts if isinstance(each, Column)}
    columns: dict[str, Column[Any]] = {}
    for field, hint in get_type_hints(record_type).items():
        column = names.get(field, field)
        kinds = [each for each in get_args(hint) if each is not NoneType]
        optional = NoneType in get_args(hint)
        kind = _get_type_of_non_null_column(kinds[0] if optional else hint)
        columns[column] = Column(
            column, kind, primary_key=field in keys, autoincrement=False, nullable=optional
        )
    columns |= {table_name: given.pop(table_name) for table_name in columns if table_name in given}
    kept = [each for column, each in columns.items() if column not in but]
    others = [each for each in parts if not isinstance(each, Column)]
    return Table(table_name, METADATA, *given.values(), *kept, *others)


def _text_column(name: str, *parts: SchemaItem, **more: Any) -> Column[Any]:
    return Column(name, Text, *parts, nullable=False, **more)


def _user_column(**more: Any) -> Column[Any]:
    return _text_column("user_id", ForeignKey("users.id"), **more)


def _project_column(**more: Any) -> Column[Any]:
    return _text_column("project_id", ForeignKey("projects.id"), **more)


def _digest_column() -> Column[Any]:
    return Column("digest", LargeBinary, nullable=False, unique=True)


users = _table_for(User, "users", _text_column("email", unique=True))

identities = _table_for(
    LinkedIdentity, "identities", _user_column(index=True), keys=("issuer", "subject")
)

# Groups that identity providers provision by SCIM.
identity_groups = _table_for(IdentityGroup, "identity_groups", UniqueConstraint("provider", "name"))

identity_group_members = _build_table_of_given_columns(
    "identity_group_members",
    Column("group_id", Text, ForeignKey("identity_groups.id"), primary_key=True),
    _user_column(primary_key=True, index=True),
)

projects = _table_for(Project, "projects")

memberships = _table_for(
    Membership,
    "memberships",
    _project_column(primary_key=True),
    _user_column(primary_key=True, index=True),
)

one_time_links = _table_for(
    OneTimeLink,
    "one_time_links",
    _digest_column(),
    Column("project_id", Text, ForeignKey("projects.id"), index=True),
    Column("user_id", Text, ForeignKey("users.id")),
    _text_column("person", index=True),
)

# When somebody last left a project: older invitations let them in no more.
departures = _build_table_of_given_columns(
    "departures",
    _project_column(primary_key=True),
    _user_column(primary_key=True),
    *_not_null_columns(MOMENT, "at"),
)

sessions = _table_for(Session, "sessions", _digest_column(), _user_column(index=True))

totp = _table_for(Authenticator, "totp", _user_column(primary_key=True))

recovery_codes = _build_table_of_given_columns(
    "recovery_codes", _user_column(primary_key=True), *_primary_key_columns(LargeBinary, "digest")
)

attempts = _table_for(
    Failures, "attempts", Column("last_at", MOMENT, nullable=False, index=True), keys=["scope"]
)

audit = _table_for(
    AuditEntry,
    "audit",
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Index(None, "project_id", "id"),
    but=("subject_name", "subject_deleted"),
)


def _execute_after_create(table: Table, statement: str, dialect: str = "") -> None:
    def execute(_: Table, connection: Connection, **more: object) -> None:
        if dialect in ("", connection.dialect.name):
            connection.exec_driver_sql(statement)

    event.listen(table, "after_create", execute)


_DAYS = 90 * 86_400_000_000  # entries of the last 90 days cannot be deleted
for _dialect, _statement in (
    (
        "sqlite",
        "CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit "
        "BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END",
    ),
    (
        "sqlite",
        "CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit "
        f"WHEN OLD.at > CAST(strftime('%s', 'now') AS INTEGER) * 1000000 - {_DAYS} "
        "BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END",
    ),
    (
        "postgresql",
        "CREATE FUNCTION audit_only_grows() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the audit log is only added to'; END $$",
    ),
    (
        "postgresql",
        "CREATE TRIGGER audit_only_grows BEFORE UPDATE OR TRUNCATE ON audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION audit_only_grows()",
    ),
    (
        "postgresql",
        "CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit FOR EACH ROW WHEN "
        f"(OLD.at > (extract(epoch from now()) * 1000000)::bigint - {_DAYS}) "
        "EXECUTE FUNCTION audit_only_grows()",
    ),
):
    _execute_after_create(audit, _statement, _dialect)


api_keys = _table_for(
    ApiKey,
    "api_keys",
    _project_column(),
    _text_column("person", index=True),
    Index(None, "project_id", "created_at"),
    but=("bounds", "person_status"),
)

# A key that is being rotated has two secrets for a while; the old one has an end.
key_secrets = _table_for(
    KeySecret,
    "key_secrets",
    _text_column("key_id", ForeignKey("api_keys.id"), index=True),
    keys=["digest"],
)

# Owners are `key:ID`, `user:ID` and `project:ID`. The model is empty where a row is for all models.
limits = _table_for(Limit, "limits", *_primary_key_columns(Text, "owner"), keys=["model"])

# `amount` counts billionths of money, or tokens.
budgets = _table_for(
    Budget,
    "budgets",
    *_primary_key_columns(Text, "owner"),
    *_not_null_columns(BigInteger, "amount"),
    keys=("model", "unit", "period"),
)

# What a project, a user or (`member:PROJECT/USER`) a member may use. Prices are of 1M tokens.
access = _table_for(Access, "access", *_primary_key_columns(Text, "owner"))

operator_keys = _table_for(OperatorKey, "operator_keys", _digest_column())

# Amounts paid in for projects; withdrawals have a minus.
credits = _table_for(Credit, "credits", Index(None, "project_id", "at"))

schema_state = _build_table_of_given_columns(
    "schema_state",
    *_primary_key_columns(Integer, "id"),
    Column("served_from", Text),  # the revision that a version must know to serve these tables
    Column("version", Text),  # of the program that said so
)

# One row, raised by whoever changes a key or project: its lock makes the order of
# numbers the order of commits, which a sequence does not.
change_counter = _build_table_of_given_columns(
    "change_counter", *_primary_key_columns(Integer, "id"), *_not_null_columns(BigInteger, "number")
)
_execute_after_create(schema_state, "INSERT INTO schema_state (id) VALUES (1)")
_execute_after_create(change_counter, "INSERT INTO change_counter (id, number) VALUES (1, 0)")

changes = _build_table_of_given_columns(
    "changes",
    *_primary_key_columns(BigInteger, "number"),
    *_not_null_columns(Text, "subject"),
    Column("at", MOMENT, nullable=False, index=True),
)


configuration_entries = _table_for(
    StoredEntry, "configuration_entries", UniqueConstraint("kind", "name"), but=["unreadable"]
)

# The ids are those of usage records.
recordings = _table_for(
    Recording,
    "recordings",
    *_primary_key_columns(Uuid(as_uuid=False), "id"),
    _text_column("project_id", index=True),
    Column("expires_at", MOMENT, nullable=False, index=True),
)


RENAMED = {"project": "project_id", "key": "key_id", "user": "user_id", "provider": "served_by"}
"""Columns of usage whose fields have other names."""
usage_records = _table_for(
    UsageRecord,
    "usage_records",
    *_primary_key_columns(Uuid(as_uuid=False), "id"),
    _text_column("request_id", index=True),
    Column("at", BigInteger, nullable=False, index=True),
    Index(None, "project_id", "at"),
    Index(None, "key_id", "at"),
    Index(
        *("ix_usage_records_failures", "project_id", "at"),
        sqlite_where=text("status >= 400"),
        postgresql_where=text("status >= 400"),
    ),
    names=RENAMED,
)


_SEARCHED = ("key_id", "user_id", "tag", "served_by")


def _build_usage_sums_table(table_name: str, *places: str) -> Table:
    return _table_by_owner_and_start(
        table_name,
        "project_id",
        *_primary_key_columns(Text, *places),
        *_not_null_columns(BigInteger, "requests", "refused", "failed", "aborted"),
        *_not_null_columns(BigInteger, "prompt", "cached", "completion", "reasoning"),
        *_not_null_columns(MONEY, "cost"),
        *_not_null_columns(BigInteger, "first_token_us", "first_tokens", "duration_us"),
        *_not_null_columns(BigInteger, "charged", "written"),
        *(Index(None, each, "start") for each in _SEARCHED if each in places),
    )


usage_hourly = _build_usage_sums_table("usage_hourly", "key_id", "user_id", "model", "door")
usage_daily = _build_usage_sums_table("usage_daily", "key_id", "user_id", "model", "door")

# By what clients say of their requests, which may be very many: apart from all others, so that
# pages which do not ask for them cost the same. By the hour.
usage_apps = _build_usage_sums_table("usage_apps", "app", "model")
usage_tags = _build_usage_sums_table("usage_tags", "tag", "user_id", "model")

# By who answered, for rankings. By the hour.
usage_targets = _build_usage_sums_table("usage_targets", "model", "served_by")

# What was charged for, by day, as the invoices of providers list it. Statements are made of it.
usage_charged = _table_by_owner_and_start(
    "usage_charged",
    "project_id",
    *_primary_key_columns(Text, "tag", "model", "served_by"),
    *_not_null_columns(
        BigInteger, "requests", "prompt", "cached", "written", "completion", "reasoning"
    ),
    *_not_null_columns(BigInteger, "units"),
    *_not_null_columns(MONEY, "cost"),
)

# Counts by time to the first token: the histogram that percentiles come from.
usage_first_token = _table_by_owner_and_start(
    "usage_first_token",
    "project_id",
    *_primary_key_columns(Text, "model", "key_id", "user_id"),
    *_primary_key_columns(Integer, "bucket"),
    *_not_null_columns(BigInteger, "requests"),
)


def _measurements_table(table_name: str) -> Table:
    return _table_by_owner_and_start(
        table_name,
        "target",
        *_not_null_columns(BigInteger, "answered", "failed"),
        *_not_null_columns(BigInteger, "first_tokens", "first_token_us", "speeds", "speed"),
    )


# What all processes measured of targets, for 90 days; starts are in Unix seconds.
target_quarters, target_days = map(_measurements_table, ("target_quarters", "target_days"))


alerts = _table_for(StoredAlert, "alerts", keys=["key"])

alert_deliveries = _table_for(
    Delivery,
    "alert_deliveries",
    Column("at", MOMENT, nullable=False, index=True),
    Column("next_at", MOMENT, index=True),
)


probe_results = _build_table_of_given_columns(
    "probe_results",
    *_primary_key_columns(Text, "provider", "model"),
    *_not_null_columns(Text, "kept"),
)
