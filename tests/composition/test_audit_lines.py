"""The audit log in the log stream: each entry that was stored, while the settings want it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostedkit import config
from servicekit import service_view
from structlog.testing import capture_logs

from causerie.access.keys import KeyDigest
from causerie.settings.load import load
from causerie.settings.problems import SettingsError

KEY = "ck_ops_0123456789"
CONSOLE = f'[console]\noperator_keys = ["ck_ops:{KeyDigest.of("ops", KEY).digest.hex()}"]\n'
AUDIT = "[logging]\naudit = true\n"


async def test_entries_are_lines_once_they_are_stored(tmp_path: Path) -> None:
    text = config(folder=str(tmp_path)) + CONSOLE
    async with service_view(tmp_path, text + AUDIT) as service:

        async def create(email: str) -> int:
            async with service.session.post(
                f"{service.root}/api/users",
                json={"email": email, "name": "Ada"},
                headers={"authorization": f"Bearer {KEY}"},
            ) as response:
                return response.status

        with capture_logs() as lines:
            assert await create("ada@example.org") == 201
            assert await create("ada@example.org") == 409, "nothing was stored"
            assert (await service.reload(text)).applied
            assert await create("bob@example.org") == 201
    audit = [each for each in lines if each["event"] == "audit"]
    assert len(audit) == 1
    assert audit[0]["action"] == "user.create"
    assert audit[0]["actor"] == "key:ck_ops"
    assert audit[0]["subject"].startswith("usr_")
    assert audit[0]["details"]["email"] == "ada@example.org"


def test_a_level_that_would_hide_them_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "causerie.toml"
    file.write_text(AUDIT + 'level = "warning"\n')
    with pytest.raises(SettingsError, match=r"logging\.audit"):
        load(file=file, environ={})
