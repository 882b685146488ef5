"""Results of probes, which were files of the process that probed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "probe_results",
        sa.Column("provider", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("kept", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("provider", "model", name="pk_probe_results"),
    )


def downgrade() -> None:
    """Forget all results."""
    op.drop_table("probe_results")
