"""Up to the next version and back: two programs on one database, each a process of its own.

The next version is a copy of this one with one revision more. Once there is a release, the one
before it is tried as well.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hostedkit import config, office
from openai import AsyncOpenAI
from service import Service, serving
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
    source, skipped = Path(causerie.__file__).parent, shutil.ignore_patterns("__pycache__")
    shutil.copytree(source, copied, dirs_exist_ok=True, ignore=skipped)
    revision = REVISION.format(before=REVISIONS[-1], more=more)
    versions = copied / "hosted" / "store" / "migrations" / "versions"
    (versions / "r9999_next.py").write_text(revision)
    tables = copied / "hosted" / "store" / "tables.py"
    tables.write_text(
        tables.read_text().replace(_PROJECT, f'{_PROJECT}\n    *_optional(Text, "cost_centre"),')
    )
    return "env", f"PYTHONPATH={folder / 'next'}", sys.executable, "-m", "causerie"


_PROJECT = '    "projects",'


async def say(service: Service, key: str) -> None:
    async with AsyncOpenAI(api_key=key, base_url=f"{service.root}/hosted/v1") as client:
        await client.chat.completions.create(
            model="small", messages=[{"role": "user", "content": "Hi"}]
        )


def migrate(program: Sequence[str], folder: Path, *more: str) -> str:
    command = [*program, "migrate", "--config", str(folder / "causerie.toml"), *more]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=True)
    return done.stdout


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.full)])
def url(request: pytest.FixtureRequest) -> str | None:
    """Return the address of the database; without one it is a file of the service."""
    if request.param == "sqlite":
        return None
    found: str = request.getfixturevalue("hosted_database")
    return found


async def test_the_version_before_serves_again_after_an_upgrade(
    tmp_path: Path, url: str | None
) -> None:
    """Nobody restores a backup, and nothing is missing from the ledger."""
    program = next_version(tmp_path)
    with serving(tmp_path, config(url=url)) as service:
        async with office(tmp_path / "data", url=url) as opened:
            key = (await opened.key()).credential
            project = opened.project
        await say(service, key)
    plan = migrate(program, tmp_path, "--plan")
    assert f"has revision {REVISIONS[-1]}; an upgrade makes 1 change" in plan
    assert (
        "9999  Cost centres of projects.\n    ALTER TABLE projects ADD COLUMN cost_centre" in plan
    )
    assert "Afterwards the version that runs now can serve these tables too." in plan
    assert migrate(program, tmp_path) == "The database has revision 9999.\n"
    with serving(tmp_path, config(url=url), program=program) as service:
        await say(service, key)
    with serving(tmp_path, config(url=url)) as service:
        await say(service, key)
        assert "the tables are those of a newer version" in service.log.read_text()
    with serving(tmp_path, config(url=url), program=program) as service:
        await say(service, key)
    async with office(tmp_path / "data", project, url=url) as opened:
        assert [each.status for each in await opened.records()] == [200] * 4


def test_a_version_that_took_something_away_says_who_can_serve(tmp_path: Path) -> None:
    """A plan tells it beforehand, and the version before says it instead of failing later."""
    with serving(tmp_path, config()):
        pass
    program = next_version(tmp_path, more='served_from = "9999"')
    assert "it lacks revision 9999: back up the database first" in migrate(
        program, tmp_path, "--plan"
    )
    migrate(program, tmp_path)
    started = serving(tmp_path, config())
    with (
        pytest.raises(AssertionError, match="lets no version without revision 9999 serve"),
        started,
    ):
        pass
