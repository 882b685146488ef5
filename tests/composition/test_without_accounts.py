"""A service without accounts imports nothing of ``causerie.hosted``."""

from __future__ import annotations

import subprocess
import sys

_ALL_BUT_ACCOUNTS = """
import sys
import causerie.cli.serve, causerie.composition.app, causerie.composition.service
import causerie.composition.doors, causerie.http.pages.chat, causerie.http.pages.docs
print(*sys.modules)
"""


def test_a_service_without_accounts_imports_nothing_of_them() -> None:
    command = [sys.executable, "-c", _ALL_BUT_ACCOUNTS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    imported = done.stdout.split()
    assert "causerie.composition.service" in imported
    assert [name for name in imported if name.startswith(("causerie.hosted", "sqlalchemy"))] == []
