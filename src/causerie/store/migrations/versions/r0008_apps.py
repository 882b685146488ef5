"""Usage: the program that asked, as it called itself, and sums by it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_SUMS = (
    *("requests", "refused", "failed", "aborted"),
    *("prompt", "cached", "completion", "reasoning", "cost"),
    *("first_token_us", "first_tokens", "duration_us"),
)


def upgrade() -> None:
    """Add both; what there was is of programs without a name."""
    for name in ("app", "referer"):
        column = sa.Column(name, sa.Text, nullable=False, server_default="")
        op.add_column("usage_records", column)
    op.create_table(
        "usage_apps",
        sa.Column("project_id", sa.Text, nullable=False),
        sa.Column("start", sa.BigInteger, nullable=False),
        sa.Column("app", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        *(sa.Column(each, sa.BigInteger, nullable=False) for each in _SUMS),
        sa.PrimaryKeyConstraint("project_id", "start", "app", "model", name="pk_usage_apps"),
    )
    op.create_index("ix_usage_apps_start", "usage_apps", ["start"])
    sums = ", ".join(f"SUM({name})" for name in _SUMS)
    op.execute(
        f"INSERT INTO usage_apps (project_id, start, app, model, {', '.join(_SUMS)}) "
        f"SELECT project_id, start, '', model, {sums} FROM usage_hourly "
        "GROUP BY project_id, start, model"
    )


def downgrade() -> None:
    """Forget them."""
    op.drop_table("usage_apps")
    for name in ("referer", "app"):
        op.drop_column("usage_records", name)
