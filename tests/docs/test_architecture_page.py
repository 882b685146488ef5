"""The page of the architecture names files that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_file_that_the_page_names_exists() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:\w+/)*\w+\.py)`", page))
    assert len(named) > 50
    source = ROOT / "src" / "causerie"
    missing = {name for name in named if not ((source / name).exists() or (ROOT / name).exists())}
    assert missing == set()
