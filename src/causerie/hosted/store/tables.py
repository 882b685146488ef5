"""The tables for the queries, with column types that mean the same on SQLite and PostgreSQL.

Times and money are whole numbers in the database, so that no driver or column type rounds them.
Usage and the audit log have no foreign keys, because they outlive keys, people and projects. A test
compares the tables with those that the migrations create.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
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
    false,
    text,
)
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeDecorator

from causerie.protocol.money import amount_of, billionths

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(moment: datetime) -> int:
    """Return microseconds since 1970; raise :class:`ValueError` without a time zone."""
    if moment.tzinfo is None:
        raise ValueError("a moment needs a time zone; use datetime.now(UTC)")
    return (moment - _EPOCH) // _MICROSECOND


def moment_of(stored: int) -> datetime:
    """Return the UTC time of microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=stored)


class Moment(TypeDecorator[datetime]):
    """A :class:`datetime` with a time zone, stored as microseconds since 1970."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else microseconds(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        return None if value is None else moment_of(value)


class Money(TypeDecorator[Decimal]):
    """A :class:`~decimal.Decimal`, stored as billionths; its sums are money too."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> int | None:
        return None if value is None else billionths(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> Decimal | None:
        return None if value is None else amount_of(int(value))  # PostgreSQL sums to decimals


class JsonText(TypeDecorator[Any]):
    """A value of this ``kind``, stored as JSON, a set as a sorted list.

    ``None`` is stored as ``missing``, or else as ``NULL``, which is not the empty set.
    """

    impl = Text
    cache_ok = True

    def __init__(self, kind: Any, missing: str | None = None) -> None:
        super().__init__()
        self.kind = kind
        self.missing = missing

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        if value is None:
            return self.missing
        plain = sorted(value) if isinstance(value, set | frozenset) else value
        return msgspec.json.encode(plain).decode()

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        stored = value or self.missing
        return None if stored is None else msgspec.json.decode(stored, type=self.kind)


NAME_SET = JsonText(frozenset[str])
NETWORKS = JsonText(tuple[str, ...])
JSON_OBJECT = JsonText(dict[str, Any], "{}")


METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _table(name: str, *parts: SchemaItem) -> Table:
    return Table(name, METADATA, *parts)


def _keys(kind: Any, *names: str) -> Iterator[Column[Any]]:
    return (Column(name, kind, primary_key=True, autoincrement=False) for name in names)


def _required(kind: Any, *names: str) -> Iterator[Column[Any]]:
    return (Column(name, kind, nullable=False) for name in names)


def _optional(kind: Any, *names: str) -> Iterator[Column[Any]]:
    return (Column(name, kind) for name in names)


def _added(kind: Any, default: Any, *names: str) -> Iterator[Column[Any]]:
    return (Column(name, kind, nullable=False, server_default=default) for name in names)


users = _table(
    "users",
    *_keys(Text, "id"),
    Column("email", Text, nullable=False, unique=True),
    *_required(Text, "name"),
    *_optional(Text, "password"),
    *_required(Boolean, "operator"),
    *_required(Moment, "created_at"),
    *_optional(Moment, "disabled_at"),
    *_added(Text, "", "operator_group", "user_name", "external_id"),
    *_added(JsonText(frozenset[str], "[]"), "[]", "rights"),
)

identities = _table(
    "identities",
    *_keys(Text, "issuer", "subject"),
    Column("user_id", Text, ForeignKey("users.id"), nullable=False, index=True),
    *_required(Moment, "linked_at"),
)

# Groups that identity providers provision by SCIM.
identity_groups = _table(
    "identity_groups",
    *_keys(Text, "id"),
    *_required(Text, "provider", "name", "external_id"),
    *_required(Moment, "created_at"),
    UniqueConstraint("provider", "name"),
)

identity_group_members = _table(
    "identity_group_members",
    Column("group_id", Text, ForeignKey("identity_groups.id"), primary_key=True),
    Column("user_id", Text, ForeignKey("users.id"), primary_key=True, index=True),
)

projects = _table(
    "projects",
    *_keys(Text, "id"),
    *_required(Text, "name"),
    *_required(Moment, "created_at"),
    *_optional(Moment, "archived_at"),
    *_optional(Integer, "recording_days"),
    *_optional(NETWORKS, "networks"),
)

memberships = _table(
    "memberships",
    Column("project_id", Text, ForeignKey("projects.id"), primary_key=True),
    Column("user_id", Text, ForeignKey("users.id"), primary_key=True, index=True),
    *_required(Text, "role"),
    *_required(Moment, "since"),
    *_added(Text, "", "from_group"),
)

one_time_links = _table(
    "one_time_links",
    *_keys(Text, "id"),
    *_required(Text, "kind"),
    Column("digest", LargeBinary, nullable=False, unique=True),
    *_optional(Text, "email"),
    Column("project_id", Text, ForeignKey("projects.id"), index=True),
    *_optional(Text, "role"),
    *_required(Boolean, "operator"),
    Column("user_id", Text, ForeignKey("users.id")),
    *_required(Text, "created_by"),
    *_required(Moment, "created_at", "expires_at"),
    *_optional(Moment, "used_at"),
    Column("person", Text, index=True),
)

# When somebody last left a project: older invitations let them in no more.
departures = _table(
    "departures",
    Column("project_id", Text, ForeignKey("projects.id"), primary_key=True),
    Column("user_id", Text, ForeignKey("users.id"), primary_key=True),
    *_required(Moment, "at"),
)

sessions = _table(
    "sessions",
    *_keys(Text, "id"),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("user_id", Text, ForeignKey("users.id"), nullable=False, index=True),
    *_required(Text, "stage"),
    *_required(Moment, "created_at", "seen_at", "expires_at"),
    *_required(Text, "address", "agent"),
    *_added(Text, "", "method"),
)

totp = _table(
    "totp",
    Column("user_id", Text, ForeignKey("users.id"), primary_key=True),
    *_required(Text, "secret"),
    *_optional(Moment, "confirmed_at"),
    *_required(BigInteger, "last_step"),
)

recovery_codes = _table(
    "recovery_codes",
    Column("user_id", Text, ForeignKey("users.id"), primary_key=True),
    *_keys(LargeBinary, "digest"),
)

attempts = _table(
    "attempts",
    *_keys(Text, "scope"),
    *_required(Integer, "failures"),
    Column("last_at", Moment, nullable=False, index=True),
)

audit = _table(
    "audit",
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    *_required(Moment, "at"),
    *_required(Text, "actor", "actor_name", "action"),
    *_optional(Text, "project_id"),
    *_required(Text, "subject"),
    *_required(JSON_OBJECT, "details"),
    Index(None, "project_id", "id"),
)


# `person` is the user that a key derives from, empty for nobody; `NULL` where a version wrote it
# that did not know persons.
api_keys = _table(
    "api_keys",
    *_keys(Text, "id"),
    Column("project_id", Text, ForeignKey("projects.id"), nullable=False),
    *_required(Text, "created_by", "name", "purpose"),
    *_optional(NAME_SET, "doors", "models"),
    *_required(Moment, "created_at"),
    *_optional(Moment, "expires_at", "disabled_at"),
    *_optional(Text, "disabled_by"),
    *_optional(Moment, "deleted_at"),
    Column("person", Text, index=True),
    *_optional(Moment, "withdrawn_at"),
    *_optional(NETWORKS, "networks"),
    Index(None, "project_id", "created_at"),
)

# A key that is being rotated has two secrets for a while; the old one has an end.
key_secrets = _table(
    "key_secrets",
    *_keys(LargeBinary, "digest"),
    Column("key_id", Text, ForeignKey("api_keys.id"), nullable=False, index=True),
    *_optional(Moment, "expires_at"),
)

# Owners are `key:ID`, `user:ID` and `project:ID`. The model is empty where a row is for all models.
limits = _table(
    "limits",
    *_keys(Text, "owner", "model"),
    *_optional(BigInteger, "requests_per_minute", "tokens_per_minute"),
    *_optional(BigInteger, "input_tokens_per_minute", "output_tokens_per_minute", "concurrent"),
)

# `amount` counts billionths of money, or tokens.
budgets = _table(
    "budgets",
    *_keys(Text, "owner", "model", "unit", "period"),
    *_required(BigInteger, "amount"),
    *_added(Boolean, false(), "soft"),
)

# What a project, a user or (`member:PROJECT/USER`) a member may use. Prices are of 1M tokens.
access = _table(
    "access",
    *_keys(Text, "owner"),
    *_optional(NAME_SET, "models", "doors", "providers"),
    *_optional(Money, "prompt_price", "completion_price"),
)

operator_keys = _table(
    "operator_keys",
    *_keys(Text, "id"),
    Column("digest", LargeBinary, nullable=False, unique=True),
    *_required(Text, "name"),
    *_required(NAME_SET, "rights"),
    *_required(Text, "created_by"),
    *_required(Moment, "created_at"),
    *_optional(Moment, "expires_at", "deleted_at"),
)

# Amounts paid in for projects; withdrawals have a minus.
credits = _table(
    "credits",
    *_keys(Text, "id"),
    *_required(Text, "project_id"),
    *_required(Money, "amount"),
    *_required(Moment, "at"),
    *_required(Text, "by", "note"),
    Index(None, "project_id", "at"),
)

# One row, raised by whoever changes a key or project: its lock makes the order of
# numbers the order of commits, which a sequence does not.
schema_state = _table(
    "schema_state",
    *_keys(Integer, "id"),
    Column("served_from", Text),  # the revision that a version must know to serve these tables
    Column("version", Text),  # of the program that said so
)

change_counter = _table("change_counter", *_keys(Integer, "id"), *_required(BigInteger, "number"))

changes = _table(
    "changes",
    *_keys(BigInteger, "number"),
    *_required(Text, "subject"),
    Column("at", Moment, nullable=False, index=True),
)


configuration_entries = _table(
    "configuration_entries",
    *_keys(Text, "id"),
    *_required(Text, "kind", "name"),
    *_required(JSON_OBJECT, "body"),
    *_optional(Text, "credential"),
    *_required(Boolean, "enabled"),
    *_required(Integer, "version"),
    *_required(Moment, "created_at", "updated_at"),
    *_required(Text, "created_by", "updated_by"),
    UniqueConstraint("kind", "name"),
)


# The ids are those of usage records.
recordings = _table(
    "recordings",
    *_keys(Uuid(as_uuid=False), "id"),
    Column("project_id", Text, nullable=False, index=True),
    *_required(Text, "user_id"),
    *_required(Moment, "at"),
    Column("expires_at", Moment, nullable=False, index=True),
    *_required(Text, "request", "reply"),
    *_required(Boolean, "request_cut", "reply_cut"),
)


usage_records = _table(
    "usage_records",
    *_keys(Uuid(as_uuid=False), "id"),
    Column("request_id", Text, nullable=False, index=True),
    Column("at", BigInteger, nullable=False, index=True),
    *_required(Text, "project_id", "key_id", "user_id", "door", "model", "served_by"),
    *_required(Boolean, "stream"),
    *_required(Integer, "status", "attempts"),
    *_optional(Text, "code", "finish", "param"),
    *_required(BigInteger, "prompt", "cached", "completion", "reasoning"),
    *_required(BigInteger, "cost"),  # in billionths
    *_required(BigInteger, "queue_us", "duration_us"),
    *_optional(BigInteger, "first_token_us"),
    *_added(BigInteger, "0", "upstream_us"),
    *_added(Integer, "0", "continued"),
    *_added(Boolean, false(), "estimated"),
    *_added(JsonText(tuple[str, ...], "[]"), "[]", "tried"),
    *_added(Text, "", "reason", "app", "referer", "cache_miss", "tag"),
    *_added(Text, "chat", "operation"),
    *_added(Integer, "0", "units"),
    *_added(BigInteger, "0", "written"),
    Index(None, "project_id", "at"),
    Index(None, "key_id", "at"),
    Index(
        *("ix_usage_records_failures", "project_id", "at"),
        sqlite_where=text("status >= 400"),
        postgresql_where=text("status >= 400"),
    ),
)


_SEARCHED = ("key_id", "user_id", "tag", "served_by")


def _usage_sums(name: str, *places: str) -> Table:
    return _table(
        name,
        *_keys(Text, "project_id"),
        Column("start", BigInteger, primary_key=True, autoincrement=False, index=True),
        *_keys(Text, *places),
        *_required(BigInteger, "requests", "refused", "failed", "aborted"),
        *_required(BigInteger, "prompt", "cached", "completion", "reasoning"),
        *_required(Money, "cost"),
        *_required(BigInteger, "first_token_us", "first_tokens", "duration_us"),
        *_added(BigInteger, "0", "charged", "written"),
        *(Index(None, each, "start") for each in _SEARCHED if each in places),
    )


usage_hourly = _usage_sums("usage_hourly", "key_id", "user_id", "model", "door")
usage_daily = _usage_sums("usage_daily", "key_id", "user_id", "model", "door")

# By what clients say of their requests, which may be very many: apart from all others, so that
# pages which do not ask for them cost the same. By the hour.
usage_apps = _usage_sums("usage_apps", "app", "model")
usage_tags = _usage_sums("usage_tags", "tag", "user_id", "model")

# By who answered, for rankings. By the hour.
usage_targets = _usage_sums("usage_targets", "model", "served_by")

# What was charged for, by day, as the invoices of providers list it. Statements are made of it.
usage_charged = _table(
    "usage_charged",
    *_keys(Text, "project_id"),
    Column("start", BigInteger, primary_key=True, autoincrement=False, index=True),
    *_keys(Text, "tag", "model", "served_by"),
    *_required(BigInteger, "requests", "prompt", "cached", "written", "completion", "reasoning"),
    *_required(BigInteger, "units"),
    *_required(Money, "cost"),
)

# Counts by time to the first token: the histogram that percentiles come from.
usage_first_token = _table(
    "usage_first_token",
    *_keys(Text, "project_id"),
    Column("start", BigInteger, primary_key=True, autoincrement=False, index=True),
    *_keys(Text, "model", "key_id", "user_id"),
    *_keys(Integer, "bucket"),
    *_required(BigInteger, "requests"),
)


def _measurements(name: str) -> Table:
    return _table(
        name,
        *_keys(Text, "target"),
        Column("start", BigInteger, primary_key=True, autoincrement=False, index=True),
        *_required(BigInteger, "answered", "failed"),
        *_required(BigInteger, "first_tokens", "first_token_us", "speeds", "speed"),
    )


# What all processes measured of targets, for 90 days; starts are in Unix seconds.
target_quarters, target_days = map(_measurements, ("target_quarters", "target_days"))


alerts = _table(
    "alerts",
    *_keys(Text, "key"),
    *_required(Text, "kind", "summary"),
    *_required(JSON_OBJECT, "details"),
    *_required(Integer, "level"),
    *_required(Boolean, "recovers"),
    *_required(Moment, "since", "seen_at"),
    *_optional(Moment, "resolved_at"),
)

alert_deliveries = _table(
    "alert_deliveries",
    *_keys(Text, "id"),
    *_required(Text, "channel", "to", "kind", "summary", "state", "outcome"),
    *_required(Boolean, "firing"),
    *_required(JSON_OBJECT, "details"),
    Column("at", Moment, nullable=False, index=True),
    *_required(Integer, "attempts"),
    Column("next_at", Moment, index=True),
)


probe_results = _table("probe_results", *_keys(Text, "provider", "model"), *_required(Text, "kept"))
