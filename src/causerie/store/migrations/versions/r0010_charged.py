"""Usage: the tokens of requests that are charged, which is what budgets of tokens count.

Existing rows count as they did, with the tokens of requests that failed.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

_TABLES = ("usage_hourly", "usage_daily", "usage_apps")


def upgrade() -> None:
    """Add the sum."""
    for table in _TABLES:
        op.add_column(
            table, sa.Column("charged", sa.BigInteger, nullable=False, server_default="0")
        )
        if op.get_bind().dialect.name == "sqlite":
            op.execute(f"UPDATE {table} SET charged = prompt + completion")
        else:  # writes the table anew, at once; an update would keep every row twice
            op.execute(
                f"ALTER TABLE {table} ALTER COLUMN charged TYPE BIGINT USING prompt + completion"
            )


def downgrade() -> None:
    """Forget it."""
    for table in _TABLES:
        op.drop_column(table, "charged")
