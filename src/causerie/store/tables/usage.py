"""Usage: one row a request, and what the rows add up to by hour and by day.

``at`` and ``start`` are microseconds since 1970, in UTC; ``cost`` is in
billionths. Plain numbers here, because thousands of rows a second pass.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, Table, Text, Uuid, false, text

from causerie.store.columns import LINES, Money
from causerie.store.tables.base import METADATA

usage_records = Table(
    "usage_records",
    METADATA,
    Column("id", Uuid(as_uuid=False), primary_key=True),
    Column("request_id", Text, nullable=False, index=True),
    Column("at", BigInteger, nullable=False, index=True),
    Column("project_id", Text, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("door", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("served_by", Text, nullable=False),
    Column("stream", Boolean, nullable=False),
    Column("status", Integer, nullable=False),
    Column("code", Text),
    Column("finish", Text),
    Column("attempts", Integer, nullable=False),
    Column("prompt", BigInteger, nullable=False),
    Column("cached", BigInteger, nullable=False),
    Column("completion", BigInteger, nullable=False),
    Column("reasoning", BigInteger, nullable=False),
    Column("cost", Money, nullable=False),
    Column("queue_us", BigInteger, nullable=False),
    Column("first_token_us", BigInteger),
    Column("duration_us", BigInteger, nullable=False),
    Column("upstream_us", BigInteger, nullable=False, server_default="0"),
    Column("continued", Integer, nullable=False, server_default="0"),
    Column("estimated", Boolean, nullable=False, server_default=false()),
    Column("tried", LINES, nullable=False, server_default="[]"),
    Column("reason", Text, nullable=False, server_default=""),
    Column("param", Text),
    Column("app", Text, nullable=False, server_default=""),
    Column("referer", Text, nullable=False, server_default=""),
    Column("cache_miss", Text, nullable=False, server_default=""),
    Column("tag", Text, nullable=False, server_default=""),
    Index(None, "project_id", "at"),
    Index(None, "key_id", "at"),
    Index(
        "ix_usage_records_failures",
        "project_id",
        "at",
        sqlite_where=text("status >= 400"),
        postgresql_where=text("status >= 400"),
    ),
)


def _rolled_up(name: str, *places: str) -> Table:
    """Sums of a project by start and these places; ``charged`` are the tokens that are paid for."""
    return Table(
        name,
        METADATA,
        Column("project_id", Text, primary_key=True),
        Column("start", BigInteger, primary_key=True, autoincrement=False, index=True),
        *(Column(place, Text, primary_key=True) for place in places),
        Column("requests", BigInteger, nullable=False),
        Column("refused", BigInteger, nullable=False),
        Column("failed", BigInteger, nullable=False),
        Column("aborted", BigInteger, nullable=False),
        Column("prompt", BigInteger, nullable=False),
        Column("cached", BigInteger, nullable=False),
        Column("completion", BigInteger, nullable=False),
        Column("reasoning", BigInteger, nullable=False),
        Column("cost", Money, nullable=False),
        Column("first_token_us", BigInteger, nullable=False),
        Column("first_tokens", BigInteger, nullable=False),
        Column("duration_us", BigInteger, nullable=False),
        Column("charged", BigInteger, nullable=False, server_default="0"),
        *([Index(None, "key_id", "start")] if "key_id" in places else []),
        *([Index(None, "user_id", "start")] if "user_id" in places else []),
    )


usage_hourly = _rolled_up("usage_hourly", "key_id", "user_id", "model", "door")
usage_daily = _rolled_up("usage_daily", "key_id", "user_id", "model", "door")

# By what clients say of their requests, which may be very many: apart from all others, so that
# pages which do not ask for them cost the same. By the hour.
usage_apps = _rolled_up("usage_apps", "app", "model")
usage_tags = _rolled_up("usage_tags", "tag", "user_id", "model")

# By who answered, for rankings. By the hour.
usage_targets = _rolled_up("usage_targets", "model", "served_by")

# Counts by time to the first token: the histogram that percentiles come from.
usage_first_token = Table(
    "usage_first_token",
    METADATA,
    Column("project_id", Text, primary_key=True),
    Column("start", BigInteger, primary_key=True, autoincrement=False, index=True),
    Column("model", Text, primary_key=True),
    Column("key_id", Text, primary_key=True),
    Column("user_id", Text, primary_key=True),
    Column("bucket", Integer, primary_key=True, autoincrement=False),
    Column("requests", BigInteger, nullable=False),
)
