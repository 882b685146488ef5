"""All tables of the first release."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    for make in _TABLES:
        make()
    _let_audit_only_grow()


def downgrade() -> None:
    """Remove them."""
    if op.get_bind().dialect.name != "sqlite":  # where triggers go with their table
        op.execute("DROP TRIGGER audit_only_grows ON audit")
        op.execute("DROP FUNCTION audit_only_grows()")
    for make in reversed(_TABLES):
        op.drop_table(make.__name__.removeprefix("_"))


def _required(kind: Any, *names: str) -> Iterator[sa.Column[Any]]:
    return (sa.Column(name, kind, nullable=False) for name in names)


def _attempts() -> None:
    op.create_table(
        "attempts",
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("last_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("scope", name="pk_attempts"),
    )
    op.create_index("ix_attempts_last_at", "attempts", ["last_at"])


def _audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        *_required(sa.Text, "actor", "actor_name", "action"),
        sa.Column("project_id", sa.Text),
        *_required(sa.Text, "subject", "details"),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )
    op.create_index("ix_audit_project_id_id", "audit", ["project_id", "id"])


def _projects() -> None:
    op.create_table(
        "projects",
        *_required(sa.Text, "id", "name"),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("archived_at", sa.BigInteger),
        sa.Column("recording_days", sa.Integer),
        sa.PrimaryKeyConstraint("id", name="pk_projects"),
    )


def _users() -> None:
    op.create_table(
        "users",
        *_required(sa.Text, "id", "email", "name"),
        sa.Column("password", sa.Text),
        sa.Column("operator", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("disabled_at", sa.BigInteger),
        sa.Column("operator_group", sa.Text, nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("id", name="pk_users"),
        sa.UniqueConstraint("email", name="uq_users_email"),
    )


def _departures() -> None:
    op.create_table(
        "departures",
        *_required(sa.Text, "project_id", "user_id"),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("project_id", "user_id", name="pk_departures"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_departures_project_id"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_departures_user_id"),
    )


def _identities() -> None:
    op.create_table(
        "identities",
        *_required(sa.Text, "issuer", "subject", "user_id"),
        sa.Column("linked_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("issuer", "subject", name="pk_identities"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_identities_user_id"),
    )
    op.create_index("ix_identities_user_id", "identities", ["user_id"])


def _memberships() -> None:
    op.create_table(
        "memberships",
        *_required(sa.Text, "project_id", "user_id", "role"),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("from_group", sa.Text, nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("project_id", "user_id", name="pk_memberships"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_memberships_project_id"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_memberships_user_id"),
    )
    op.create_index("ix_memberships_user_id", "memberships", ["user_id"])


def _one_time_links() -> None:
    op.create_table(
        "one_time_links",
        *_required(sa.Text, "id", "kind"),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("email", sa.Text),
        sa.Column("project_id", sa.Text),
        sa.Column("role", sa.Text),
        sa.Column("operator", sa.Boolean, nullable=False),
        sa.Column("user_id", sa.Text),
        sa.Column("created_by", sa.Text, nullable=False),
        *_required(sa.BigInteger, "created_at", "expires_at"),
        sa.Column("used_at", sa.BigInteger),
        sa.Column("person", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_one_time_links"),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name="fk_one_time_links_project_id"
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_one_time_links_user_id"),
        sa.UniqueConstraint("digest", name="uq_one_time_links_digest"),
    )
    op.create_index("ix_one_time_links_person", "one_time_links", ["person"])
    op.create_index("ix_one_time_links_project_id", "one_time_links", ["project_id"])


def _recovery_codes() -> None:
    op.create_table(
        "recovery_codes",
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("user_id", "digest", name="pk_recovery_codes"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_recovery_codes_user_id"),
    )


def _sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        *_required(sa.Text, "user_id", "stage"),
        *_required(sa.BigInteger, "created_at", "seen_at", "expires_at"),
        *_required(sa.Text, "address", "agent"),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_sessions_user_id"),
        sa.UniqueConstraint("digest", name="uq_sessions_digest"),
    )
    op.create_index("ix_sessions_user_id", "sessions", ["user_id"])


def _totp() -> None:
    op.create_table(
        "totp",
        *_required(sa.Text, "user_id", "secret"),
        sa.Column("confirmed_at", sa.BigInteger),
        sa.Column("last_step", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("user_id", name="pk_totp"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_totp_user_id"),
    )


def _budgets() -> None:
    op.create_table(
        "budgets",
        *_required(sa.Text, "owner", "model", "unit", "period"),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("owner", "model", "unit", "period", name="pk_budgets"),
    )


def _change_counter() -> None:
    op.create_table(
        "change_counter",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_change_counter"),
    )
    op.execute("INSERT INTO change_counter (id, number) VALUES (1, 0)")


def _changes() -> None:
    op.create_table(
        "changes",
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_changes"),
    )
    op.create_index("ix_changes_at", "changes", ["at"])


def _credits() -> None:
    op.create_table(
        "credits",
        *_required(sa.Text, "id", "project_id"),
        *_required(sa.BigInteger, "amount", "at"),
        *_required(sa.Text, "by", "note"),
        sa.PrimaryKeyConstraint("id", name="pk_credits"),
    )
    op.create_index("ix_credits_project_id_at", "credits", ["project_id", "at"])


def _limits() -> None:
    op.create_table(
        "limits",
        *_required(sa.Text, "owner", "model"),
        sa.Column("requests_per_minute", sa.BigInteger),
        sa.Column("tokens_per_minute", sa.BigInteger),
        sa.Column("input_tokens_per_minute", sa.BigInteger),
        sa.Column("output_tokens_per_minute", sa.BigInteger),
        sa.Column("concurrent", sa.BigInteger),
        sa.PrimaryKeyConstraint("owner", "model", name="pk_limits"),
    )


def _api_keys() -> None:
    op.create_table(
        "api_keys",
        *_required(sa.Text, "id", "project_id", "created_by", "name", "purpose"),
        sa.Column("doors", sa.Text),
        sa.Column("models", sa.Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("disabled_at", sa.BigInteger),
        sa.Column("disabled_by", sa.Text),
        sa.Column("deleted_at", sa.BigInteger),
        sa.Column("person", sa.Text),
        sa.Column("withdrawn_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_api_keys_project_id"),
    )
    op.create_index("ix_api_keys_person", "api_keys", ["person"])
    op.create_index("ix_api_keys_project_id_created_at", "api_keys", ["project_id", "created_at"])


def _key_secrets() -> None:
    op.create_table(
        "key_secrets",
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("digest", name="pk_key_secrets"),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.id"], name="fk_key_secrets_key_id"),
    )
    op.create_index("ix_key_secrets_key_id", "key_secrets", ["key_id"])


def _usage_apps() -> None:
    op.create_table(
        "usage_apps",
        sa.Column("project_id", sa.Text, nullable=False),
        sa.Column("start", sa.BigInteger, nullable=False),
        *_required(sa.Text, "app", "model"),
        *_required(
            sa.BigInteger,
            "requests",
            "refused",
            "failed",
            "aborted",
            "prompt",
            "cached",
            "completion",
            "reasoning",
            "cost",
            "first_token_us",
            "first_tokens",
            "duration_us",
        ),
        sa.Column("charged", sa.BigInteger, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("project_id", "start", "app", "model", name="pk_usage_apps"),
    )
    op.create_index("ix_usage_apps_start", "usage_apps", ["start"])


def _usage_daily() -> None:
    op.create_table(
        "usage_daily",
        sa.Column("project_id", sa.Text, nullable=False),
        sa.Column("start", sa.BigInteger, nullable=False),
        *_required(sa.Text, "key_id", "user_id", "model", "door"),
        *_required(
            sa.BigInteger,
            "requests",
            "refused",
            "failed",
            "aborted",
            "prompt",
            "cached",
            "completion",
            "reasoning",
            "cost",
            "first_token_us",
            "first_tokens",
            "duration_us",
        ),
        sa.Column("charged", sa.BigInteger, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint(
            "project_id", "start", "key_id", "user_id", "model", "door", name="pk_usage_daily"
        ),
    )
    op.create_index("ix_usage_daily_key_id_start", "usage_daily", ["key_id", "start"])
    op.create_index("ix_usage_daily_start", "usage_daily", ["start"])
    op.create_index("ix_usage_daily_user_id_start", "usage_daily", ["user_id", "start"])


def _usage_first_token() -> None:
    op.create_table(
        "usage_first_token",
        sa.Column("project_id", sa.Text, nullable=False),
        sa.Column("start", sa.BigInteger, nullable=False),
        *_required(sa.Text, "model", "key_id", "user_id"),
        sa.Column("bucket", sa.Integer, nullable=False),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint(
            "project_id",
            "start",
            "model",
            "key_id",
            "user_id",
            "bucket",
            name="pk_usage_first_token",
        ),
    )
    op.create_index("ix_usage_first_token_start", "usage_first_token", ["start"])


def _usage_hourly() -> None:
    op.create_table(
        "usage_hourly",
        sa.Column("project_id", sa.Text, nullable=False),
        sa.Column("start", sa.BigInteger, nullable=False),
        *_required(sa.Text, "key_id", "user_id", "model", "door"),
        *_required(
            sa.BigInteger,
            "requests",
            "refused",
            "failed",
            "aborted",
            "prompt",
            "cached",
            "completion",
            "reasoning",
            "cost",
            "first_token_us",
            "first_tokens",
            "duration_us",
        ),
        sa.Column("charged", sa.BigInteger, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint(
            "project_id", "start", "key_id", "user_id", "model", "door", name="pk_usage_hourly"
        ),
    )
    op.create_index("ix_usage_hourly_key_id_start", "usage_hourly", ["key_id", "start"])
    op.create_index("ix_usage_hourly_start", "usage_hourly", ["start"])
    op.create_index("ix_usage_hourly_user_id_start", "usage_hourly", ["user_id", "start"])


def _usage_records() -> None:
    op.create_table(
        "usage_records",
        sa.Column("id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        *_required(sa.Text, "project_id", "key_id", "user_id", "door", "model", "served_by"),
        sa.Column("stream", sa.Boolean, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("code", sa.Text),
        sa.Column("finish", sa.Text),
        sa.Column("attempts", sa.Integer, nullable=False),
        *_required(
            sa.BigInteger, "prompt", "cached", "completion", "reasoning", "cost", "queue_us"
        ),
        sa.Column("first_token_us", sa.BigInteger),
        sa.Column("duration_us", sa.BigInteger, nullable=False),
        sa.Column("upstream_us", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("continued", sa.Integer, nullable=False, server_default="0"),
        sa.Column("estimated", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("tried", sa.Text, nullable=False, server_default="[]"),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        sa.Column("param", sa.Text),
        sa.Column("app", sa.Text, nullable=False, server_default=""),
        sa.Column("referer", sa.Text, nullable=False, server_default=""),
        sa.Column("cache_miss", sa.Text, nullable=False, server_default=""),
        sa.Column("tag", sa.Text, nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("id", name="pk_usage_records"),
    )
    op.create_index("ix_usage_records_at", "usage_records", ["at"])
    op.create_index(
        "ix_usage_records_failures",
        "usage_records",
        ["project_id", "at"],
        sqlite_where=sa.text("status >= 400"),
        postgresql_where=sa.text("status >= 400"),
    )
    op.create_index("ix_usage_records_key_id_at", "usage_records", ["key_id", "at"])
    op.create_index("ix_usage_records_project_id_at", "usage_records", ["project_id", "at"])
    op.create_index("ix_usage_records_request_id", "usage_records", ["request_id"])


def _usage_tags() -> None:
    op.create_table(
        "usage_tags",
        sa.Column("project_id", sa.Text, nullable=False),
        sa.Column("start", sa.BigInteger, nullable=False),
        *_required(sa.Text, "tag", "user_id", "model"),
        *_required(
            sa.BigInteger,
            "requests",
            "refused",
            "failed",
            "aborted",
            "prompt",
            "cached",
            "completion",
            "reasoning",
            "cost",
            "first_token_us",
            "first_tokens",
            "duration_us",
        ),
        sa.Column("charged", sa.BigInteger, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint(
            "project_id", "start", "tag", "user_id", "model", name="pk_usage_tags"
        ),
    )
    op.create_index("ix_usage_tags_start", "usage_tags", ["start"])
    op.create_index("ix_usage_tags_user_id_start", "usage_tags", ["user_id", "start"])


def _usage_targets() -> None:
    op.create_table(
        "usage_targets",
        sa.Column("project_id", sa.Text, nullable=False),
        sa.Column("start", sa.BigInteger, nullable=False),
        *_required(sa.Text, "model", "served_by"),
        *_required(
            sa.BigInteger,
            "requests",
            "refused",
            "failed",
            "aborted",
            "prompt",
            "cached",
            "completion",
            "reasoning",
            "cost",
            "first_token_us",
            "first_tokens",
            "duration_us",
        ),
        sa.Column("charged", sa.BigInteger, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint(
            "project_id", "start", "model", "served_by", name="pk_usage_targets"
        ),
    )
    op.create_index("ix_usage_targets_start", "usage_targets", ["start"])


def _recordings() -> None:
    op.create_table(
        "recordings",
        sa.Column("id", sa.Uuid(as_uuid=False), nullable=False),
        *_required(sa.Text, "project_id", "user_id"),
        *_required(sa.BigInteger, "at", "expires_at"),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("request_cut", sa.Boolean, nullable=False),
        sa.Column("reply", sa.Text, nullable=False),
        sa.Column("reply_cut", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_recordings"),
    )
    op.create_index("ix_recordings_expires_at", "recordings", ["expires_at"])
    op.create_index("ix_recordings_project_id", "recordings", ["project_id"])


def _configuration_entries() -> None:
    op.create_table(
        "configuration_entries",
        *_required(sa.Text, "id", "kind", "name", "body"),
        sa.Column("credential", sa.Text),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("updated_by", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_configuration_entries"),
        sa.UniqueConstraint("kind", "name", name="uq_configuration_entries_kind_name"),
    )


def _probe_results() -> None:
    op.create_table(
        "probe_results",
        *_required(sa.Text, "provider", "model", "kept"),
        sa.PrimaryKeyConstraint("provider", "model", name="pk_probe_results"),
    )


def _alert_deliveries() -> None:
    op.create_table(
        "alert_deliveries",
        *_required(sa.Text, "id", "channel", "to", "kind"),
        sa.Column("firing", sa.Boolean, nullable=False),
        *_required(sa.Text, "summary", "details"),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("next_at", sa.BigInteger),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_alert_deliveries"),
    )
    op.create_index("ix_alert_deliveries_at", "alert_deliveries", ["at"])
    op.create_index("ix_alert_deliveries_next_at", "alert_deliveries", ["next_at"])


def _alerts() -> None:
    op.create_table(
        "alerts",
        *_required(sa.Text, "key", "kind", "summary", "details"),
        sa.Column("level", sa.Integer, nullable=False),
        sa.Column("recovers", sa.Boolean, nullable=False),
        *_required(sa.BigInteger, "since", "seen_at"),
        sa.Column("resolved_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("key", name="pk_alerts"),
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


_TABLES = (
    _attempts,
    _audit,
    _projects,
    _users,
    _departures,
    _identities,
    _memberships,
    _one_time_links,
    _recovery_codes,
    _sessions,
    _totp,
    _budgets,
    _change_counter,
    _changes,
    _credits,
    _limits,
    _api_keys,
    _key_secrets,
    _usage_apps,
    _usage_daily,
    _usage_first_token,
    _usage_hourly,
    _usage_records,
    _usage_tags,
    _usage_targets,
    _recordings,
    _configuration_entries,
    _probe_results,
    _alert_deliveries,
    _alerts,
)
