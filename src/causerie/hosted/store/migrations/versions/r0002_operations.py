"""Operation and units of usage records."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add both; what was recorded before was chat."""
    op.add_column(
        "usage_records", sa.Column("operation", sa.Text, nullable=False, server_default="chat")
    )
    op.add_column(
        "usage_records", sa.Column("units", sa.Integer, nullable=False, server_default="0")
    )
