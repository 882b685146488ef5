"""The page of the architecture and the design pages are short, and name files that exist."""

from __future__ import annotations

import re
from pathlib import Path

from casekit import each_of

ROOT = Path(__file__).parents[2]
DESIGN = ROOT / "docs" / "internals" / "design"


def test_every_file_that_the_page_names_exists() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:\w+/)*\w+\.py)`", page))
    assert len(named) > 40
    source = ROOT / "src" / "causerie"
    missing = {name for name in named if not ((source / name).exists() or (ROOT / name).exists())}
    assert missing == set()


@each_of(
    ("page", "most"),
    [
        ("ARCHITECTURE.md", 150),
        *((f"docs/internals/design/{page.name}", 250) for page in DESIGN.glob("*.md")),
    ],
)
def test_a_page_is_read_in_one_sitting(page: str, most: int) -> None:
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= most
    assert [line for line in lines if len(line) > 100 and not line.startswith("|")] == []
