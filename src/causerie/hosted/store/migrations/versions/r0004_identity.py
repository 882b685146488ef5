"""Provisioning by SCIM, checks of identities between sign-ins, how sessions began, and networks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0002"

_ADDED = {
    "users": ("user_name", "external_id"),
    "sessions": ("method",),
}
_OPTIONAL = {
    "identities": (("refresh_token", sa.Text), ("checked_at", sa.BigInteger)),
    "api_keys": (("networks", sa.Text),),
    "projects": (("networks", sa.Text),),
}


def upgrade() -> None:
    for table, names in _ADDED.items():
        for name in names:
            op.add_column(table, sa.Column(name, sa.Text, nullable=False, server_default=""))
    for table, columns in _OPTIONAL.items():
        for name, kind in columns:
            op.add_column(table, sa.Column(name, kind))
    op.create_table(
        "identity_groups",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("provider", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("external_id", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_identity_groups"),
        sa.UniqueConstraint("provider", "name", name="uq_identity_groups_provider_name"),
    )
    op.create_table(
        "identity_group_members",
        sa.Column("group_id", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("group_id", "user_id", name="pk_identity_group_members"),
        sa.ForeignKeyConstraint(
            ["group_id"], ["identity_groups.id"], name="fk_identity_group_members_group_id"
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name="fk_identity_group_members_user_id"
        ),
    )
    op.create_index("ix_identity_group_members_user_id", "identity_group_members", ["user_id"])


def downgrade() -> None:
    op.drop_table("identity_group_members")
    op.drop_table("identity_groups")
    for table, names in _ADDED.items():
        with op.batch_alter_table(table) as altered:
            for name in names:
                altered.drop_column(name)
    for table, columns in _OPTIONAL.items():
        with op.batch_alter_table(table) as altered:
            for name, _ in columns:
                altered.drop_column(name)
