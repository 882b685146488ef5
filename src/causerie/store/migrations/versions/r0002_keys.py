"""API keys, their limits and budgets, and the counter of changes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the tables."""
    _keys()
    _bounds()
    _changes()


def downgrade() -> None:
    """Remove them."""
    for table in ("changes", "change_counter", "budgets", "limits", "key_secrets", "api_keys"):
        op.drop_table(table)


def _keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("project_id", sa.Text, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("purpose", sa.Text, nullable=False),
        sa.Column("doors", sa.Text),
        sa.Column("models", sa.Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("disabled_at", sa.BigInteger),
        sa.Column("disabled_by", sa.Text),
        sa.Column("deleted_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_api_keys_project_id"),
    )
    op.create_index("ix_api_keys_project_id_created_at", "api_keys", ["project_id", "created_at"])
    op.create_table(
        "key_secrets",
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("digest", name="pk_key_secrets"),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.id"], name="fk_key_secrets_key_id"),
    )
    op.create_index("ix_key_secrets_key_id", "key_secrets", ["key_id"])


def _bounds() -> None:
    op.create_table(
        "limits",
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("requests_per_minute", sa.BigInteger),
        sa.Column("tokens_per_minute", sa.BigInteger),
        sa.Column("input_tokens_per_minute", sa.BigInteger),
        sa.Column("output_tokens_per_minute", sa.BigInteger),
        sa.Column("concurrent", sa.BigInteger),
        sa.PrimaryKeyConstraint("owner", "model", name="pk_limits"),
    )
    op.create_table(
        "budgets",
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("unit", sa.Text, nullable=False),
        sa.Column("period", sa.Text, nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("owner", "model", "unit", "period", name="pk_budgets"),
    )


def _changes() -> None:
    op.create_table(
        "change_counter",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_change_counter"),
    )
    op.execute("INSERT INTO change_counter (id, number) VALUES (1, 0)")
    op.create_table(
        "changes",
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_changes"),
    )
    op.create_index("ix_changes_at", "changes", ["at"])
