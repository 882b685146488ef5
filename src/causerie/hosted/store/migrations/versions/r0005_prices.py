"""Tokens written into caches, and sums of what was charged for; old audit entries may go."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0002"

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
    _guard_audit("OLD.at > {now} - 7776000000000")  # 90 days


def downgrade() -> None:
    """Take it back."""
    _guard_audit("")
    op.drop_table("usage_charged")
    for name in _COUNTED:
        with op.batch_alter_table(name) as table:
            table.drop_column("written")


def _guard_audit(young: str) -> None:
    when = ""
    if op.get_bind().dialect.name == "sqlite":
        if young:
            now = "CAST(strftime('%s', 'now') AS INTEGER) * 1000000"
            when = f"WHEN {young.format(now=now)} "
        op.execute("DROP TRIGGER audit_no_delete")
        op.execute(
            f"CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit {when}"
            "BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END"
        )
        return
    if young:
        now = "(extract(epoch from now()) * 1000000)::bigint"
        when = f"WHEN ({young.format(now=now)}) "
    else:
        op.execute("DROP TRIGGER audit_no_delete ON audit")
    op.execute("DROP TRIGGER audit_only_grows ON audit")
    events = "UPDATE OR TRUNCATE" if young else "UPDATE OR DELETE OR TRUNCATE"
    call = "EXECUTE FUNCTION audit_only_grows()"
    op.execute(
        f"CREATE TRIGGER audit_only_grows BEFORE {events} ON audit FOR EACH STATEMENT {call}"
    )
    if young:
        op.execute(
            f"CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit FOR EACH ROW {when}{call}"
        )
