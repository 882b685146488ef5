"""Tokens written into caches, and sums of what was charged for; old audit entries may go."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_COUNTED = (
    *("usage_records", "usage_hourly", "usage_daily"),
    *("usage_apps", "usage_tags", "usage_targets"),
)


def upgrade() -> None:
    """Add both; nothing was counted before. Audit entries can be deleted after 90 days."""
    for table in _COUNTED:
        written = sa.Column("written", sa.BigInteger, nullable=False, server_default="0")
        op.add_column(table, written)
    counts = ("requests", "prompt", "cached", "written", "completion", "reasoning", "units", "cost")
    op.create_table(
        "usage_charged",
        sa.Column("project_id", sa.Text, nullable=False),
        sa.Column("start", sa.BigInteger, nullable=False, autoincrement=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("tag", "model", "served_by")),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in counts),
        sa.PrimaryKeyConstraint(
            *("project_id", "start", "tag", "model", "served_by"), name="pk_usage_charged"
        ),
    )
    op.create_index("ix_usage_charged_start", "usage_charged", ["start"])
    _let_old_audit_go()


_DAYS = 90 * 86_400_000_000


def _let_old_audit_go() -> None:
    # Entries of the last 90 days cannot be deleted.
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP TRIGGER audit_no_delete")
        op.execute(
            "CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit "
            f"WHEN OLD.at > CAST(strftime('%s', 'now') AS INTEGER) * 1000000 - {_DAYS} "
            "BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END"
        )
        return
    op.execute("DROP TRIGGER audit_only_grows ON audit")
    op.execute(
        "CREATE TRIGGER audit_only_grows BEFORE UPDATE OR TRUNCATE ON audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION audit_only_grows()"
    )
    op.execute(
        "CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit FOR EACH ROW WHEN "
        f"(OLD.at > (extract(epoch from now()) * 1000000)::bigint - {_DAYS}) "
        "EXECUTE FUNCTION audit_only_grows()"
    )
