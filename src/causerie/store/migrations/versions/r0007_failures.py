"""Usage: failures are found without looking at everything that went well."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_FAILED = sa.text("status >= 400")


def upgrade() -> None:
    """Index them by project and time."""
    op.create_index(
        "ix_usage_records_failures",
        "usage_records",
        ["project_id", "at"],
        sqlite_where=_FAILED,
        postgresql_where=_FAILED,
    )


def downgrade() -> None:
    """Remove the index."""
    op.drop_index("ix_usage_records_failures", "usage_records")
