"""Usage: why a request found less in the prefix cache than the turn before it had computed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the reason; what there was has none."""
    column = sa.Column("cache_miss", sa.Text, nullable=False, server_default="")
    op.add_column("usage_records", column)


def downgrade() -> None:
    """Forget it."""
    op.drop_column("usage_records", "cache_miss")
