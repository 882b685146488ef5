"""Provisioning by SCIM, methods of sessions, and networks of keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_ADDED = {"users": ("user_name", "external_id"), "sessions": ("method",)}
_WITH_NETWORKS = ("api_keys", "projects")


def upgrade() -> None:
    for table, names in _ADDED.items():
        for name in names:
            op.add_column(table, sa.Column(name, sa.Text, nullable=False, server_default=""))
    for table in _WITH_NETWORKS:
        op.add_column(table, sa.Column("networks", sa.Text))
    op.create_table(
        "identity_groups",
        *(sa.Column(name, sa.Text, nullable=False) for name in ("id", "provider", "name")),
        sa.Column("external_id", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_identity_groups"),
        sa.UniqueConstraint("provider", "name", name="uq_identity_groups_provider_name"),
    )
    op.create_table(
        "identity_group_members",
        sa.Column("group_id", sa.Text, sa.ForeignKey("identity_groups.id"), nullable=False),
        sa.Column("user_id", sa.Text, sa.ForeignKey("users.id"), nullable=False, index=True),
        sa.PrimaryKeyConstraint("group_id", "user_id", name="pk_identity_group_members"),
    )
