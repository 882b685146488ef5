"""Usage: how long the first token took is told apart by key and person too.

Filled from the records that are there. Counts of the histogram beyond them stay in it without a key
and a person, so that no sum changes.
"""

from __future__ import annotations

import math

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_TABLE = "usage_first_token"
_HOUR = 3_600_000_000  # microseconds
_TO_DOUBLE = 4
_HIGHEST = 62 * _TO_DOUBLE  # of times that are kept in 64 bits
_OLD = ("project_id", "start", "model", "bucket")
_NEW = ("project_id", "start", "model", "key_id", "user_id", "bucket")


def upgrade() -> None:
    """Count the records again by key and person; the rest is nobody's."""
    _rebuild(_NEW)
    op.execute(
        f"INSERT INTO {_TABLE} ({', '.join(_NEW)}, requests) "
        f"SELECT project_id, at - at % {_HOUR}, model, key_id, user_id, {_bucket()}, COUNT(*) "
        "FROM usage_records WHERE first_token_us IS NOT NULL GROUP BY 1, 2, 3, 4, 5, 6"
    )
    same = " AND ".join(f"counted.{name} = before.{name}" for name in _OLD)
    op.execute(
        f"INSERT INTO {_TABLE} ({', '.join(_NEW)}, requests) "
        "SELECT before.project_id, before.start, before.model, '', '', before.bucket, "
        "before.requests - COALESCE(counted.requests, 0) "
        f"FROM {_TABLE}_before AS before LEFT JOIN (SELECT {', '.join(_OLD)}, "
        f"SUM(requests) AS requests FROM {_TABLE} GROUP BY {', '.join(_OLD)}) AS counted "
        f"ON {same} WHERE before.requests > COALESCE(counted.requests, 0) "
        f"ON CONFLICT ({', '.join(_NEW)}) "
        f"DO UPDATE SET requests = {_TABLE}.requests + excluded.requests"
    )
    op.drop_table(f"{_TABLE}_before")


def downgrade() -> None:
    """Add up what keys and people have, and forget them."""
    _rebuild(_OLD)
    op.execute(
        f"INSERT INTO {_TABLE} ({', '.join(_OLD)}, requests) "
        f"SELECT {', '.join(_OLD)}, SUM(requests) FROM {_TABLE}_before "
        f"GROUP BY {', '.join(_OLD)}"
    )
    op.drop_table(f"{_TABLE}_before")


def _rebuild(key: tuple[str, ...]) -> None:
    """An empty table with this key; what was in it stands in a copy."""
    op.execute(f"CREATE TABLE {_TABLE}_before AS SELECT * FROM {_TABLE}")
    op.drop_table(_TABLE)
    kinds = {"start": sa.BigInteger, "bucket": sa.Integer}
    op.create_table(
        _TABLE,
        *(sa.Column(name, kinds.get(name, sa.Text), nullable=False) for name in key),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint(*key, name=f"pk_{_TABLE}"),
    )
    op.create_index(f"ix_{_TABLE}_start", _TABLE, ["start"])


def _bucket() -> str:
    """The bucket of a time, four to each doubling, as comparisons: SQLite may lack logarithms."""
    bounds = [math.isqrt(math.isqrt(2**bucket)) for bucket in range(_HIGHEST)]
    whens = " ".join(
        f"WHEN first_token_us <= {bound} THEN {bucket}"
        for bucket, bound in enumerate(bounds)
        if bucket == 0 or bound > bounds[bucket - 1]
    )
    return f"CASE {whens} ELSE {_HIGHEST} END"
