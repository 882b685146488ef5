"""All tables of the first release."""

from __future__ import annotations

revision = "0100"
down_revision = None


def upgrade() -> None:
    """Change nothing: a new database is made of the present tables, and marked as migrated."""
