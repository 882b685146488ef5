"""Up to the next version and back: two programs on one database, each a process of its own.

The next version is a copy of this one with one revision more. Once there is a release, the one
before it is tried as well.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hostedkit import config, office
from openai import AsyncOpenAI
from service import Service, serving
from storekit import REVISIONS
from upgradekit import migrate, next_version


async def say(service: Service, key: str) -> None:
    async with AsyncOpenAI(api_key=key, base_url=f"{service.root}/hosted/v1") as client:
        await client.chat.completions.create(
            model="small", messages=[{"role": "user", "content": "Hi"}]
        )


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str | None:
    """Return the address of the database; without one it is a file of the service."""
    if request.param == "sqlite":
        return None
    found: str = request.getfixturevalue("hosted_database")
    return found


@pytest.mark.full
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
    async with office(tmp_path / "data", project, url=url) as opened:
        assert [each.status for each in await opened.records()] == [200] * 3


@pytest.mark.full
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
