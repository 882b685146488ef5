"""The pages for those who move over name settings, variables and commands that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from causerie.cli.root import COMMANDS

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("from-litellm", "from-ollama", "from-openrouter")
REFERENCE = (DOCS / "reference/configuration.md").read_text(encoding="utf-8")
SECTIONS = re.findall(r"^##+ `\[+([a-z_.]+)\]+`$", REFERENCE, re.MULTILINE)


def ours(page: str) -> str:
    """What stands in the last column of the tables."""
    text = (DOCS / "guides" / f"{page}.md").read_text(encoding="utf-8")
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) > 10
    return "\n".join(row[-1] for row in rows)


def settings() -> set[str]:
    """Every table and setting of the reference, by its path."""
    found = set(SECTIONS)
    for part in re.split(r"^##+ `\[+", REFERENCE, flags=re.MULTILINE)[1:]:
        section = part.split("]", 1)[0]
        found |= {f"{section}.{name}" for name in re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)}
    return found


@pytest.mark.parametrize("page", PAGES)
def test_settings_exist(page: str) -> None:
    tables = "|".join(sorted({name.split(".")[0] for name in SECTIONS}))
    named = set(re.findall(rf"`((?:{tables})\.[a-z_.]+)`", ours(page)))
    assert named
    assert named <= settings()


def test_variables_exist() -> None:
    named = set(re.findall(r"CAUSERIE_\w+", ours("from-ollama")))
    assert named
    assert all(f"`{name}`" in REFERENCE for name in named)


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist(page: str) -> None:
    text = (DOCS / "guides" / f"{page}.md").read_text(encoding="utf-8")
    assert set(re.findall(r"(?:`|^    )causerie ([a-z]+)", text, re.MULTILINE)) <= COMMANDS.keys()
