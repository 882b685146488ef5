"""The tables for the queries, with column types that mean the same on SQLite and PostgreSQL.

Times and money are whole numbers in the database, so that no driver or column type rounds them.
Usage and the audit log have no foreign keys, because they outlive keys, people and projects. A test
compares the tables with those that the migrations create.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
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

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_BILLION = Decimal(1_000_000_000)


def microseconds(moment: datetime) -> int:
    """Return microseconds since 1970; raise :class:`ValueError` without a time zone."""
    if moment.tzinfo is None:
        raise ValueError("a moment needs a time zone; use datetime.now(UTC)")
    return (moment - _EPOCH) // _MICROSECOND


def moment_of(stored: int) -> datetime:
    """Return the UTC time of microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=stored)


def billionths(amount: Decimal) -> int:
    """Return money in billionths, rounded half to even."""
    return int((amount * _BILLION).to_integral_value(ROUND_HALF_EVEN))


def amount_of(stored: int) -> Decimal:
    """Return the amount of billionths."""
    return Decimal(stored) / _BILLION


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
LINES = JsonText(tuple[str, ...], "[]")
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


def _required(kind: Any, *names: str) -> list[Column[Any]]:
    return [Column(name, kind, nullable=False) for name in names]


users = _table(
    "users",
    Column("id", Text, primary_key=True),
    Column("email", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("password", Text),
    Column("operator", Boolean, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("disabled_at", Moment),
    Column("operator_group", Text, nullable=False, server_default=""),
)

identities = _table(
    "identities",
    Column("issuer", Text, primary_key=True),
    Column("subject", Text, primary_key=True),
    Column("user_id", Text, ForeignKey("users.id"), nullable=False, index=True),
    Column("linked_at", Moment, nullable=False),
)

projects = _table(
    "projects",
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("archived_at", Moment),
    Column("recording_days", Integer),
)

memberships = _table(
    "memberships",
    Column("project_id", Text, ForeignKey("projects.id"), primary_key=True),
    Column("user_id", Text, ForeignKey("users.id"), primary_key=True, index=True),
    Column("role", Text, nullable=False),
    Column("since", Moment, nullable=False),
    Column("from_group", Text, nullable=False, server_default=""),
)

one_time_links = _table(
    "one_time_links",
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("email", Text),
    Column("project_id", Text, ForeignKey("projects.id"), index=True),
    Column("role", Text),
    Column("operator", Boolean, nullable=False),
    Column("user_id", Text, ForeignKey("users.id")),
    Column("created_by", Text, nullable=False),
    *_required(Moment, "created_at", "expires_at"),
    Column("used_at", Moment),
    Column("person", Text, index=True),
)

# When somebody last left a project: older invitations let them in no more.
departures = _table(
    "departures",
    Column("project_id", Text, ForeignKey("projects.id"), primary_key=True),
    Column("user_id", Text, ForeignKey("users.id"), primary_key=True),
    Column("at", Moment, nullable=False),
)

sessions = _table(
    "sessions",
    Column("id", Text, primary_key=True),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("user_id", Text, ForeignKey("users.id"), nullable=False, index=True),
    Column("stage", Text, nullable=False),
    *_required(Moment, "created_at", "seen_at", "expires_at"),
    *_required(Text, "address", "agent"),
)

totp = _table(
    "totp",
    Column("user_id", Text, ForeignKey("users.id"), primary_key=True),
    Column("secret", Text, nullable=False),
    Column("confirmed_at", Moment),
    Column("last_step", BigInteger, nullable=False),
)

recovery_codes = _table(
    "recovery_codes",
    Column("user_id", Text, ForeignKey("users.id"), primary_key=True),
    Column("digest", LargeBinary, primary_key=True),
)

attempts = _table(
    "attempts",
    Column("scope", Text, primary_key=True),
    Column("failures", Integer, nullable=False),
    Column("last_at", Moment, nullable=False, index=True),
)

audit = _table(
    "audit",
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("at", Moment, nullable=False),
    *_required(Text, "actor", "actor_name", "action"),
    Column("project_id", Text),
    Column("subject", Text, nullable=False),
    Column("details", JSON_OBJECT, nullable=False),
    Index(None, "project_id", "id"),
)


# `person` is the user that a key derives from, empty for nobody; `NULL` where a version wrote it
# that did not know persons.
api_keys = _table(
    "api_keys",
    Column("id", Text, primary_key=True),
    Column("project_id", Text, ForeignKey("projects.id"), nullable=False),
    *_required(Text, "created_by", "name", "purpose"),
    Column("doors", NAME_SET),
    Column("models", NAME_SET),
    Column("created_at", Moment, nullable=False),
    Column("expires_at", Moment),
    Column("disabled_at", Moment),
    Column("disabled_by", Text),
    Column("deleted_at", Moment),
    Column("person", Text, index=True),
    Column("withdrawn_at", Moment),
    Index(None, "project_id", "created_at"),
)

# A key that is being rotated has two secrets for a while; the old one has an end.
key_secrets = _table(
    "key_secrets",
    Column("digest", LargeBinary, primary_key=True),
    Column("key_id", Text, ForeignKey("api_keys.id"), nullable=False, index=True),
    Column("expires_at", Moment),
)

# Owners are `key:ID`, `user:ID` and `project:ID`. The model is empty where a row is for all models.
limits = _table(
    "limits",
    Column("owner", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("requests_per_minute", BigInteger),
    Column("tokens_per_minute", BigInteger),
    Column("input_tokens_per_minute", BigInteger),
    Column("output_tokens_per_minute", BigInteger),
    Column("concurrent", BigInteger),
)

# `amount` counts billionths of money, or tokens.
budgets = _table(
    "budgets",
    Column("owner", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("unit", Text, primary_key=True),
    Column("period", Text, primary_key=True),
    Column("amount", BigInteger, nullable=False),
)

# Amounts paid in for projects; withdrawals have a minus.
credits = _table(
    "credits",
    Column("id", Text, primary_key=True),
    Column("project_id", Text, nullable=False),
    Column("amount", Money, nullable=False),
    Column("at", Moment, nullable=False),
    *_required(Text, "by", "note"),
    Index(None, "project_id", "at"),
)

# One row, raised by whoever changes a key or project: its lock makes the order of
# numbers the order of commits, which a sequence does not.
change_counter = _table(
    "change_counter",
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False),
)

changes = _table(
    "changes",
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("subject", Text, nullable=False),
    Column("at", Moment, nullable=False, index=True),
)


configuration_entries = _table(
    "configuration_entries",
    Column("id", Text, primary_key=True),
    *_required(Text, "kind", "name"),
    Column("body", JSON_OBJECT, nullable=False),
    Column("credential", Text),
    Column("enabled", Boolean, nullable=False),
    Column("version", Integer, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("updated_at", Moment, nullable=False),
    Column("updated_by", Text, nullable=False),
    UniqueConstraint("kind", "name"),
)


# The ids are those of usage records.
recordings = _table(
    "recordings",
    Column("id", Uuid(as_uuid=False), primary_key=True),
    Column("project_id", Text, nullable=False, index=True),
    Column("user_id", Text, nullable=False),
    Column("at", Moment, nullable=False),
    Column("expires_at", Moment, nullable=False, index=True),
    Column("request", Text, nullable=False),
    Column("request_cut", Boolean, nullable=False),
    Column("reply", Text, nullable=False),
    Column("reply_cut", Boolean, nullable=False),
)


usage_records = _table(
    "usage_records",
    Column("id", Uuid(as_uuid=False), primary_key=True),
    Column("request_id", Text, nullable=False, index=True),
    Column("at", BigInteger, nullable=False, index=True),
    *_required(Text, "project_id", "key_id", "user_id", "door", "model", "served_by"),
    Column("stream", Boolean, nullable=False),
    Column("status", Integer, nullable=False),
    Column("code", Text),
    Column("finish", Text),
    Column("attempts", Integer, nullable=False),
    *_required(BigInteger, "prompt", "cached", "completion", "reasoning"),
    Column("cost", Money, nullable=False),
    Column("queue_us", BigInteger, nullable=False),
    Column("first_token_us", BigInteger),
    Column("duration_us", BigInteger, nullable=False),
    Column("upstream_us", BigInteger, nullable=False, server_default="0"),
    Column("continued", Integer, nullable=False, server_default="0"),
    Column("estimated", Boolean, nullable=False, server_default=false()),
    Column("tried", LINES, nullable=False, server_default="[]"),
    Column("reason", Text, nullable=False, server_default=""),
    Column("param", Text),
    Column("app", Text, nullable=False, server_default=""),
    Column("referer", Text, nullable=False, server_default=""),
    Column("cache_miss", Text, nullable=False, server_default=""),
    Column("tag", Text, nullable=False, server_default=""),
    Column("operation", Text, nullable=False, server_default="chat"),
    Column("units", Integer, nullable=False, server_default="0"),
    Index(None, "project_id", "at"),
    Index(None, "key_id", "at"),
    Index(
        "ix_usage_records_failures",
        "project_id",
        "at",
        sqlite_where=text("status >= 400"),
        postgresql_where=text("status >= 400"),
    ),
)


def _rolled_up(name: str, *places: str) -> Table:
    return _table(
        name,
        Column("project_id", Text, primary_key=True),
        Column("start", BigInteger, primary_key=True, autoincrement=False, index=True),
        *(Column(place, Text, primary_key=True) for place in places),
        *_required(BigInteger, "requests", "refused", "failed", "aborted"),
        *_required(BigInteger, "prompt", "cached", "completion", "reasoning"),
        *_required(Money, "cost"),
        *_required(BigInteger, "first_token_us", "first_tokens", "duration_us"),
        Column("charged", BigInteger, nullable=False, server_default="0"),
        *([Index(None, "key_id", "start")] if "key_id" in places else []),
        *([Index(None, "user_id", "start")] if "user_id" in places else []),
    )


usage_hourly = _rolled_up("usage_hourly", "key_id", "user_id", "model", "door")
usage_daily = _rolled_up("usage_daily", "key_id", "user_id", "model", "door")

# By what clients say of their requests, which may be very many: apart from all others, so that
# pages which do not ask for them cost the same. By the hour.
usage_apps = _rolled_up("usage_apps", "app", "model")
usage_tags = _rolled_up("usage_tags", "tag", "user_id", "model")

# By who answered, for rankings. By the hour.
usage_targets = _rolled_up("usage_targets", "model", "served_by")

# Counts by time to the first token: the histogram that percentiles come from.
usage_first_token = _table(
    "usage_first_token",
    Column("project_id", Text, primary_key=True),
    Column("start", BigInteger, primary_key=True, autoincrement=False, index=True),
    Column("model", Text, primary_key=True),
    Column("key_id", Text, primary_key=True),
    Column("user_id", Text, primary_key=True),
    Column("bucket", Integer, primary_key=True, autoincrement=False),
    Column("requests", BigInteger, nullable=False),
)


alerts = _table(
    "alerts",
    Column("key", Text, primary_key=True),
    *_required(Text, "kind", "summary"),
    Column("details", JSON_OBJECT, nullable=False),
    Column("level", Integer, nullable=False),
    Column("recovers", Boolean, nullable=False),
    *_required(Moment, "since", "seen_at"),
    Column("resolved_at", Moment),
)

alert_deliveries = _table(
    "alert_deliveries",
    Column("id", Text, primary_key=True),
    *_required(Text, "channel", "to", "kind"),
    Column("firing", Boolean, nullable=False),
    Column("summary", Text, nullable=False),
    Column("details", JSON_OBJECT, nullable=False),
    Column("at", Moment, nullable=False, index=True),
    Column("state", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_at", Moment, index=True),
    Column("outcome", Text, nullable=False),
)


probe_results = _table(
    "probe_results",
    Column("provider", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("kept", Text, nullable=False),
)
