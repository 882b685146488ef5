"""Contents of requests, for projects that keep them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Make the table, and the column that says who keeps them."""
    op.add_column("projects", sa.Column("recording_days", sa.Integer))
    op.create_table(
        "recordings",
        sa.Column("id", sa.Uuid(as_uuid=False), nullable=False),
        sa.Column("project_id", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("request_cut", sa.Boolean, nullable=False),
        sa.Column("reply", sa.Text, nullable=False),
        sa.Column("reply_cut", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_recordings"),
    )
    op.create_index("ix_recordings_project_id", "recordings", ["project_id"])
    op.create_index("ix_recordings_expires_at", "recordings", ["expires_at"])


def downgrade() -> None:
    """Remove them, with all that was kept."""
    op.drop_table("recordings")
    op.drop_column("projects", "recording_days")
