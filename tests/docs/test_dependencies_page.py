"""Each dependency has its reason on the page, and nothing else is there."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def declared() -> dict[str, list[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["dependency-groups"]
    lists = {
        "To run": project["project"]["dependencies"],
        "To build": groups["build"],
        "To test": groups["dev"],
    }
    return {
        title: sorted(re.split(r"[^A-Za-z0-9_.-]", each, maxsplit=1)[0] for each in entries)
        for title, entries in lists.items()
    }


def explained() -> dict[str, list[str]]:
    page = (ROOT / "docs" / "internals/dependencies.md").read_text(encoding="utf-8")
    found: dict[str, list[str]] = {}
    title = ""
    for line in page.splitlines():
        if line.startswith("## "):
            title = line.removeprefix("## ")
            found[title] = []
        elif (row := re.fullmatch(r"\| (\S+) \| (.{10,}) \|", line)) and row[1] != "package":
            found[title].append(row[1])
    return {title: sorted(names) for title, names in found.items()}


def vendored() -> list[str]:
    """Return the packages of which pages load scripts, as they are pinned."""
    packages = json.loads((ROOT / "tools/vendor/package-lock.json").read_text(encoding="utf-8"))
    pinned = packages["packages"]
    direct = pinned[""]["dependencies"]
    for name in direct:
        assert pinned[f"node_modules/{name}"]["integrity"].startswith("sha512-"), name
    return sorted(direct)


def test_every_dependency_has_its_reason() -> None:
    assert explained() == {**declared(), "In pages": vendored()}


def test_locks_hold_every_dependency_with_hashes() -> None:
    wanted = {name.lower().replace("_", "-") for names in declared().values() for name in names}
    runtime = {
        name.lower().replace("_", "-")
        for title, names in declared().items()
        if title != "To test"
        for name in names
    }
    for file, names in (("requirements-dev.lock", wanted), ("requirements.lock", runtime)):
        text = (ROOT / file).read_text(encoding="utf-8")
        locked = re.findall(r"^([a-z0-9.-]+)==\S+.* \\\n    --hash=sha256:[0-9a-f]{64}", text, re.M)
        assert names <= set(locked), f"{file} is behind pyproject.toml; run `make lock`"
        assert "://" not in text
