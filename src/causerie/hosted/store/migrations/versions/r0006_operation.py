"""The revision that a version of the program must know to serve these tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the table with its one row, which every upgrade fills."""
    made = op.create_table(
        "schema_state",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("served_from", sa.Text),
        sa.Column("version", sa.Text),
    )
    op.bulk_insert(made, [{"id": 1}])
