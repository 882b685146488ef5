"""Teams: an index for the sums of a person, and marks of what an identity provider's group gave."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

_SUMS = ("usage_hourly", "usage_daily")
_MARKS = (("memberships", "from_group"), ("users", "operator_group"))


def upgrade() -> None:
    """Index the sums by person, and mark what there is as given by hand."""
    for table in _SUMS:
        op.create_index(f"ix_{table}_user_id_start", table, ["user_id", "start"])
    for table, name in _MARKS:
        op.add_column(table, sa.Column(name, sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    """Forget both; members and operators stay."""
    for table, name in _MARKS:
        op.drop_column(table, name)
    for table in _SUMS:
        op.drop_index(f"ix_{table}_user_id_start", table)
