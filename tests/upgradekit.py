"""The next version of the program: a copy of this one with one revision more."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from storekit import REVISIONS

import causerie

REVISION = '''"""Cost centres of projects."""

import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{before}"
{more}

def upgrade():
    op.add_column("projects", sa.Column("cost_centre", sa.Text))
    op.create_table("cost_centres", sa.Column("name", sa.Text, primary_key=True))
'''


def next_version(folder: Path, more: str = "") -> Sequence[str]:
    """Return the command that runs a copy of the program with one revision more."""
    copied = folder / "next" / "causerie"
    source = Path(causerie.__file__).parent
    shutil.copytree(source, copied, dirs_exist_ok=True)  # with what is compiled of it
    revision = REVISION.format(before=REVISIONS[-1], more=more)
    versions = copied / "hosted" / "store" / "migrations" / "versions"
    (versions / "r9999_next.py").write_text(revision)
    tables = copied / "hosted" / "store" / "tables.py"
    tables.write_text(
        tables.read_text().replace(_PROJECT, f'{_PROJECT}, Column("cost_centre", Text)')
    )
    return "env", f"PYTHONPATH={folder / 'next'}", sys.executable, "-m", "causerie"


_PROJECT = '_table_for(Project, "projects"'


def migrate(program: Sequence[str], folder: Path, *more: str) -> str:
    command = [*program, "migrate", "--config", str(folder / "causerie.toml"), *more]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=True)
    return done.stdout
