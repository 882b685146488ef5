"""Usage: why a request came to its end: who was asked, which field, which limit."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_COLUMNS = ("upstream_us", "continued", "estimated", "tried", "reason", "param")


def upgrade() -> None:
    """Add what is known of requests from now on."""
    for column in (
        sa.Column("upstream_us", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("continued", sa.Integer, nullable=False, server_default="0"),
        sa.Column("estimated", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("tried", sa.Text, nullable=False, server_default="[]"),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        sa.Column("param", sa.Text),
    ):
        op.add_column("usage_records", column)


def downgrade() -> None:
    """Forget it."""
    for name in reversed(_COLUMNS):
        op.drop_column("usage_records", name)
