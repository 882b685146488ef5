"""Allowed models and doors, soft budgets, operator keys, and rights of limited operators."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add them; whoever was an operator before keeps all rights."""
    op.add_column("users", sa.Column("rights", sa.Text, nullable=False, server_default="[]"))
    op.add_column(
        "budgets", sa.Column("soft", sa.Boolean, nullable=False, server_default=sa.false())
    )
    op.create_table(
        "access",
        sa.Column("owner", sa.Text, primary_key=True),
        *(sa.Column(name, sa.Text) for name in ("models", "doors", "providers")),
        *(sa.Column(name, sa.BigInteger) for name in ("prompt_price", "completion_price")),
        sa.PrimaryKeyConstraint("owner", name="pk_access"),
    )
    op.create_table(
        "operator_keys",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("name", "rights", "created_by")),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        *(sa.Column(name, sa.BigInteger) for name in ("expires_at", "deleted_at")),
        sa.PrimaryKeyConstraint("id", name="pk_operator_keys"),
        sa.UniqueConstraint("digest", name="uq_operator_keys_digest"),
    )
    op.create_index("ix_usage_tags_tag_start", "usage_tags", ["tag", "start"])
    op.create_index("ix_usage_targets_served_by_start", "usage_targets", ["served_by", "start"])
