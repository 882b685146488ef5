"""Usage: what a request is for, as its client says, and sums by that and by who answered."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"

_SUMS = (
    *("requests", "refused", "failed", "aborted"),
    *("prompt", "cached", "completion", "reasoning", "cost"),
    *("first_token_us", "first_tokens", "duration_us"),
)


def upgrade() -> None:
    """Add them; what there was has no tag, and is not summed by who answered."""
    op.add_column("usage_records", sa.Column("tag", sa.Text, nullable=False, server_default=""))
    _make("usage_tags", ["tag", "user_id", "model"])
    _make("usage_targets", ["model", "served_by"])
    names = ", ".join((*_SUMS, "charged"))
    sums = ", ".join(f"SUM({name})" for name in (*_SUMS, "charged"))
    op.execute(
        f"INSERT INTO usage_tags (project_id, start, tag, user_id, model, {names}) "
        f"SELECT project_id, start, '', user_id, model, {sums} FROM usage_hourly "
        "GROUP BY project_id, start, user_id, model"
    )


def _make(table: str, places: Sequence[str]) -> None:
    key = ("project_id", "start", *places)
    op.create_table(
        table,
        sa.Column("project_id", sa.Text, nullable=False),
        sa.Column("start", sa.BigInteger, nullable=False),
        *(sa.Column(each, sa.Text, nullable=False) for each in places),
        *(sa.Column(each, sa.BigInteger, nullable=False) for each in _SUMS),
        sa.Column("charged", sa.BigInteger, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint(*key, name=f"pk_{table}"),
    )
    op.create_index(f"ix_{table}_start", table, ["start"])
    if "user_id" in places:
        op.create_index(f"ix_{table}_user_id_start", table, ["user_id", "start"])


def downgrade() -> None:
    """Forget them."""
    op.drop_table("usage_targets")
    op.drop_table("usage_tags")
    op.drop_column("usage_records", "tag")
