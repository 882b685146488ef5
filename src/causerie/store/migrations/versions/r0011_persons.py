"""The person that each key and link derives from, and when people left projects.

An older version, which does not know persons, can run at the same time: it leaves the columns
alone, and rows that it writes meanwhile are attributed to their maker.
"""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_BY_USER = "user:"
_BY_KEY = "key:"


def upgrade() -> None:
    """Add the columns and the table, and fill them in."""
    op.add_column("api_keys", sa.Column("person", sa.Text))
    op.add_column("api_keys", sa.Column("withdrawn_at", sa.BigInteger))
    op.create_index("ix_api_keys_person", "api_keys", ["person"])
    op.add_column("one_time_links", sa.Column("person", sa.Text))
    op.create_index("ix_one_time_links_person", "one_time_links", ["person"])
    op.create_table(
        "departures",
        sa.Column("project_id", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("project_id", "user_id", name="pk_departures"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_departures_project_id"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_departures_user_id"),
    )
    _fill_keys()
    _fill_links()
    op.execute(
        "INSERT INTO departures SELECT project_id, subject, max(at) FROM audit "
        "WHERE action = 'member.remove' AND project_id IN (SELECT id FROM projects) "
        "AND subject IN (SELECT id FROM users) GROUP BY project_id, subject"
    )


def downgrade() -> None:
    """Forget it."""
    op.drop_table("departures")
    op.drop_index("ix_one_time_links_person", "one_time_links")
    op.drop_column("one_time_links", "person")
    op.drop_index("ix_api_keys_person", "api_keys")
    op.drop_column("api_keys", "withdrawn_at")
    op.drop_column("api_keys", "person")


def _fill_keys() -> None:
    """By their makers.

    A key for inference that went on when its maker was removed was kept on purpose: it is the
    project's. Others of people who are no members are withdrawn.
    """
    op.execute("UPDATE api_keys SET person = created_by WHERE created_by IN (SELECT id FROM users)")
    op.execute(
        "UPDATE api_keys SET person = (SELECT maker.person FROM api_keys maker "
        "WHERE maker.id = api_keys.created_by) WHERE person IS NULL"
    )
    op.execute("UPDATE api_keys SET person = '' WHERE person IS NULL")
    no_member = (
        "NOT EXISTS (SELECT 1 FROM memberships m WHERE m.project_id = api_keys.project_id "
        "AND m.user_id = api_keys.person)"
    )
    op.execute(
        "UPDATE api_keys SET person = '' WHERE person = created_by AND purpose = 'inference' "
        f"AND disabled_at IS NULL AND {no_member}"
    )
    now = int(datetime.now(UTC).timestamp() * 1_000_000)
    op.execute(f"UPDATE api_keys SET withdrawn_at = {now} WHERE person <> '' AND {no_member}")


def _fill_links() -> None:
    maker = "substr(one_time_links.created_by, {})"
    op.execute(
        f"UPDATE one_time_links SET person = {maker.format(len(_BY_USER) + 1)} "
        f"WHERE created_by LIKE '{_BY_USER}%'"
    )
    op.execute(
        "UPDATE one_time_links SET person = (SELECT k.person FROM api_keys k "
        f"WHERE k.id = {maker.format(len(_BY_KEY) + 1)}) WHERE created_by LIKE '{_BY_KEY}%'"
    )
    op.execute("UPDATE one_time_links SET person = '' WHERE person IS NULL")
