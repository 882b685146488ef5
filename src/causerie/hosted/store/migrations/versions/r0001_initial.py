"""All tables of the first release."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    _TABLES.create_all(op.get_bind(), checkfirst=False)
    op.execute("INSERT INTO change_counter (id, number) VALUES (1, 0)")
    _let_audit_only_grow()


# Not those of the queries, which follow the present version.
_TABLES = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _table(name: str, *parts: sa.schema.SchemaItem) -> None:
    sa.Table(name, _TABLES, *parts)


def _keys(kind: Any, *names: str) -> Iterator[sa.Column[Any]]:
    return (sa.Column(name, kind, primary_key=True) for name in names)


def _required(kind: Any, *names: str) -> Iterator[sa.Column[Any]]:
    return (sa.Column(name, kind, nullable=False) for name in names)


def _optional(kind: Any, *names: str) -> Iterator[sa.Column[Any]]:
    return (sa.Column(name, kind) for name in names)


def _added(kind: Any, default: Any, *names: str) -> Iterator[sa.Column[Any]]:
    return (sa.Column(name, kind, nullable=False, server_default=default) for name in names)


_table(
    "attempts",
    *_keys(sa.Text, "scope"),
    *_required(sa.Integer, "failures"),
    sa.Column("last_at", sa.BigInteger, nullable=False, index=True),
)
_table(
    "audit",
    *_keys(sa.BigInteger().with_variant(sa.Integer, "sqlite"), "id"),
    *_required(sa.BigInteger, "at"),
    *_required(sa.Text, "actor", "actor_name", "action"),
    *_optional(sa.Text, "project_id"),
    *_required(sa.Text, "subject", "details"),
    sa.Index(None, "project_id", "id"),
)
_table(
    "projects",
    *_keys(sa.Text, "id"),
    *_required(sa.Text, "name"),
    *_required(sa.BigInteger, "created_at"),
    *_optional(sa.BigInteger, "archived_at"),
    *_optional(sa.Integer, "recording_days"),
)
_table(
    "users",
    *_keys(sa.Text, "id"),
    sa.Column("email", sa.Text, nullable=False, unique=True),
    *_required(sa.Text, "name"),
    *_optional(sa.Text, "password"),
    *_required(sa.Boolean, "operator"),
    *_required(sa.BigInteger, "created_at"),
    *_optional(sa.BigInteger, "disabled_at"),
    *_added(sa.Text, "", "operator_group"),
)
_table(
    "departures",
    sa.Column("project_id", sa.Text, sa.ForeignKey("projects.id"), primary_key=True),
    sa.Column("user_id", sa.Text, sa.ForeignKey("users.id"), primary_key=True),
    *_required(sa.BigInteger, "at"),
)
_table(
    "identities",
    *_keys(sa.Text, "issuer", "subject"),
    sa.Column("user_id", sa.Text, sa.ForeignKey("users.id"), nullable=False, index=True),
    *_required(sa.BigInteger, "linked_at"),
)
_table(
    "memberships",
    sa.Column("project_id", sa.Text, sa.ForeignKey("projects.id"), primary_key=True),
    sa.Column("user_id", sa.Text, sa.ForeignKey("users.id"), primary_key=True, index=True),
    *_required(sa.Text, "role"),
    *_required(sa.BigInteger, "since"),
    *_added(sa.Text, "", "from_group"),
)
_table(
    "one_time_links",
    *_keys(sa.Text, "id"),
    *_required(sa.Text, "kind"),
    sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),
    *_optional(sa.Text, "email"),
    sa.Column("project_id", sa.Text, sa.ForeignKey("projects.id"), index=True),
    *_optional(sa.Text, "role"),
    *_required(sa.Boolean, "operator"),
    sa.Column("user_id", sa.Text, sa.ForeignKey("users.id")),
    *_required(sa.Text, "created_by"),
    *_required(sa.BigInteger, "created_at", "expires_at"),
    *_optional(sa.BigInteger, "used_at"),
    sa.Column("person", sa.Text, index=True),
)
_table(
    "recovery_codes",
    sa.Column("user_id", sa.Text, sa.ForeignKey("users.id"), primary_key=True),
    *_keys(sa.LargeBinary, "digest"),
)
_table(
    "sessions",
    *_keys(sa.Text, "id"),
    sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),
    sa.Column("user_id", sa.Text, sa.ForeignKey("users.id"), nullable=False, index=True),
    *_required(sa.Text, "stage"),
    *_required(sa.BigInteger, "created_at", "seen_at", "expires_at"),
    *_required(sa.Text, "address", "agent"),
)
_table(
    "totp",
    sa.Column("user_id", sa.Text, sa.ForeignKey("users.id"), primary_key=True),
    *_required(sa.Text, "secret"),
    *_optional(sa.BigInteger, "confirmed_at"),
    *_required(sa.BigInteger, "last_step"),
)
_table(
    "budgets",
    *_keys(sa.Text, "owner", "model", "unit", "period"),
    *_required(sa.BigInteger, "amount"),
)
_table("change_counter", *_keys(sa.Integer, "id"), *_required(sa.BigInteger, "number"))
_table(
    "changes",
    *_keys(sa.BigInteger, "number"),
    *_required(sa.Text, "subject"),
    sa.Column("at", sa.BigInteger, nullable=False, index=True),
)
_table(
    "credits",
    *_keys(sa.Text, "id"),
    *_required(sa.Text, "project_id"),
    *_required(sa.BigInteger, "amount", "at"),
    *_required(sa.Text, "by", "note"),
    sa.Index(None, "project_id", "at"),
)
_table(
    "limits",
    *_keys(sa.Text, "owner", "model"),
    *_optional(sa.BigInteger, "requests_per_minute", "tokens_per_minute"),
    *_optional(sa.BigInteger, "input_tokens_per_minute", "output_tokens_per_minute", "concurrent"),
)
_table(
    "api_keys",
    *_keys(sa.Text, "id"),
    sa.Column("project_id", sa.Text, sa.ForeignKey("projects.id"), nullable=False),
    *_required(sa.Text, "created_by", "name", "purpose"),
    *_optional(sa.Text, "doors", "models"),
    *_required(sa.BigInteger, "created_at"),
    *_optional(sa.BigInteger, "expires_at", "disabled_at"),
    *_optional(sa.Text, "disabled_by"),
    *_optional(sa.BigInteger, "deleted_at"),
    sa.Column("person", sa.Text, index=True),
    *_optional(sa.BigInteger, "withdrawn_at"),
    sa.Index(None, "project_id", "created_at"),
)
_table(
    "key_secrets",
    *_keys(sa.LargeBinary, "digest"),
    sa.Column("key_id", sa.Text, sa.ForeignKey("api_keys.id"), nullable=False, index=True),
    *_optional(sa.BigInteger, "expires_at"),
)


def _usage_sums(name: str, *places: str) -> None:
    _table(
        name,
        *_keys(sa.Text, "project_id"),
        sa.Column("start", sa.BigInteger, primary_key=True, index=True),
        *_keys(sa.Text, *places),
        *_required(sa.BigInteger, "requests", "refused", "failed", "aborted"),
        *_required(sa.BigInteger, "prompt", "cached", "completion", "reasoning", "cost"),
        *_required(sa.BigInteger, "first_token_us", "first_tokens", "duration_us"),
        *_added(sa.BigInteger, "0", "charged"),
        *(sa.Index(None, each, "start") for each in ("key_id", "user_id") if each in places),
    )


_usage_sums("usage_apps", "app", "model")
_usage_sums("usage_daily", "key_id", "user_id", "model", "door")
_usage_sums("usage_hourly", "key_id", "user_id", "model", "door")
_usage_sums("usage_tags", "tag", "user_id", "model")
_usage_sums("usage_targets", "model", "served_by")
_table(
    "usage_first_token",
    *_keys(sa.Text, "project_id"),
    sa.Column("start", sa.BigInteger, primary_key=True, index=True),
    *_keys(sa.Text, "model", "key_id", "user_id"),
    *_keys(sa.Integer, "bucket"),
    *_required(sa.BigInteger, "requests"),
)
_table(
    "usage_records",
    *_keys(sa.Uuid(as_uuid=False), "id"),
    sa.Column("request_id", sa.Text, nullable=False, index=True),
    sa.Column("at", sa.BigInteger, nullable=False, index=True),
    *_required(sa.Text, "project_id", "key_id", "user_id", "door", "model", "served_by"),
    *_required(sa.Boolean, "stream"),
    *_required(sa.Integer, "status"),
    *_optional(sa.Text, "code", "finish"),
    *_required(sa.Integer, "attempts"),
    *_required(sa.BigInteger, "prompt", "cached", "completion", "reasoning", "cost", "queue_us"),
    *_optional(sa.BigInteger, "first_token_us"),
    *_required(sa.BigInteger, "duration_us"),
    *_added(sa.BigInteger, "0", "upstream_us"),
    *_added(sa.Integer, "0", "continued"),
    *_added(sa.Boolean, sa.false(), "estimated"),
    *_added(sa.Text, "[]", "tried"),
    *_added(sa.Text, "", "reason"),
    *_optional(sa.Text, "param"),
    *_added(sa.Text, "", "app", "referer", "cache_miss", "tag"),
    sa.Index(None, "key_id", "at"),
    sa.Index(None, "project_id", "at"),
    sa.Index(
        *("ix_usage_records_failures", "project_id", "at"),
        sqlite_where=sa.text("status >= 400"),
        postgresql_where=sa.text("status >= 400"),
    ),
)
_table(
    "recordings",
    *_keys(sa.Uuid(as_uuid=False), "id"),
    sa.Column("project_id", sa.Text, nullable=False, index=True),
    *_required(sa.Text, "user_id"),
    *_required(sa.BigInteger, "at"),
    sa.Column("expires_at", sa.BigInteger, nullable=False, index=True),
    *_required(sa.Text, "request"),
    *_required(sa.Boolean, "request_cut"),
    *_required(sa.Text, "reply"),
    *_required(sa.Boolean, "reply_cut"),
)
_table(
    "configuration_entries",
    *_keys(sa.Text, "id"),
    *_required(sa.Text, "kind", "name", "body"),
    *_optional(sa.Text, "credential"),
    *_required(sa.Boolean, "enabled"),
    *_required(sa.Integer, "version"),
    *_required(sa.BigInteger, "created_at"),
    *_required(sa.Text, "created_by"),
    *_required(sa.BigInteger, "updated_at"),
    *_required(sa.Text, "updated_by"),
    sa.UniqueConstraint("kind", "name"),
)
_table("probe_results", *_keys(sa.Text, "provider", "model"), *_required(sa.Text, "kept"))
_table(
    "alert_deliveries",
    *_keys(sa.Text, "id"),
    *_required(sa.Text, "channel", "to", "kind"),
    *_required(sa.Boolean, "firing"),
    *_required(sa.Text, "summary", "details"),
    sa.Column("at", sa.BigInteger, nullable=False, index=True),
    *_required(sa.Text, "state"),
    *_required(sa.Integer, "attempts"),
    sa.Column("next_at", sa.BigInteger, index=True),
    *_required(sa.Text, "outcome"),
)
_table(
    "alerts",
    *_keys(sa.Text, "key"),
    *_required(sa.Text, "kind", "summary", "details"),
    *_required(sa.Integer, "level"),
    *_required(sa.Boolean, "recovers"),
    *_required(sa.BigInteger, "since", "seen_at"),
    *_optional(sa.BigInteger, "resolved_at"),
)


def _let_audit_only_grow() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER audit_no_{verb.lower()} BEFORE {verb} ON audit "
                "BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END"
            )
        return
    op.execute(
        "CREATE FUNCTION audit_only_grows() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the audit log is only added to'; END $$"
    )
    op.execute(
        "CREATE TRIGGER audit_only_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION audit_only_grows()"
    )
