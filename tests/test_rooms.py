"""Who may import whom, as the table in ``pyproject.toml`` has it: what no row allows is denied."""

from __future__ import annotations

import ast
import shutil
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from casekit import each_of
from roomkit import Room, Table, loose, order, unused, violations
from sourcekit import READS_SOURCE, SOURCE, trees

ROOT = Path(__file__).parents[1]
TABLE = Table.read(ROOT / "pyproject.toml")
STAGES = {"access", "catalog", "chat", "metering", "routing"}
MAX_LOOSE = 6

pytestmark = READS_SOURCE


def test_every_import_is_allowed() -> None:
    assert violations(SOURCE, TABLE) == []


def test_the_table_allows_nothing_that_is_not_needed() -> None:
    assert unused(SOURCE, TABLE) == []


def test_no_rooms_import_each_other_in_a_circle() -> None:
    assert set(order(TABLE)) == set(TABLE.rooms)


def test_a_table_with_a_circle_is_noticed() -> None:
    upward = Room(frozenset({"composition"}), frozenset())
    with pytest.raises(ValueError, match=r"circle: .*'composition'.*'errors'"):
        order(replace(TABLE, rooms={**TABLE.rooms, "errors": upward}))


@each_of("stage", sorted(STAGES))
def test_the_table_keeps_the_stages_apart(stage: str) -> None:
    allowed = {TABLE.room_of(entry) for entry in TABLE.rooms[stage].rooms}
    assert not allowed & STAGES, f"stages meet in pipeline.py, not in {stage}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports at the start of a module; those for type checkers alone are not run."""
    modules = {
        f"causerie.{name.removesuffix('.py').replace('/', '.')}".removesuffix(".__init__"): tree
        for name, tree in trees().items()
    }
    graph: dict[str, set[str]] = {}
    for name, tree in modules.items():
        imports = [each for each in tree.body if isinstance(each, ast.ImportFrom)]
        parts = [(each.module or "", one.name) for each in imports for one in each.names]
        found = {
            f"{module}.{part}" if f"{module}.{part}" in modules else module
            for module, part in parts
        }
        graph[name] = found & modules.keys() - {name}
    assert set(TopologicalSorter(graph).static_order()) == modules.keys()


def test_the_table_keeps_the_settings_for_those_who_assemble() -> None:
    knowing = {name for name, row in TABLE.rooms.items() if "settings" in row.rooms}
    assert knowing == {"cli", "composition"}


def test_few_modules_are_loose() -> None:
    assert len(loose(SOURCE)) <= MAX_LOOSE, f"{loose(SOURCE)}: find the room of one of them"


@dataclass(frozen=True)
class Planted:
    """Text that is added to a module, and how what is wrong with it is reported."""

    file: str
    text: str
    reported: str


PLANTED = {
    "package in a foreign room": Planted(
        "hosted/console/usage.py", "import sqlalchemy", "hosted.console may not import sqlalchemy"
    ),
    "package below its top": Planted(
        "http/exchange.py",
        "from sqlalchemy.ext.asyncio import AsyncSession",
        "http may not import sqlalchemy",
    ),
    "package that no row names": Planted(
        "providers/incoming.py", "import numpy as np", "providers may not import numpy"
    ),
    "package of a neighbour in the same folder": Planted(
        "engines/registry.py", "import xllamacpp", "engines may not import xllamacpp"
    ),
    "upward": Planted(
        "access/limits.py",
        "from causerie.pipeline import Pipeline",
        "access may not import pipeline",
    ),
    "upward, the module itself": Planted(
        "protocol/sse.py",
        "import causerie.http.server",
        "protocol may not import http.server",
    ),
    "upward, from the package": Planted(
        "metering/meter.py", "from causerie import hosted", "metering may not import hosted"
    ),
    "upward, relative": Planted(
        "providers/target.py", "from ..http import server", "providers may not import http.server"
    ),
    "upward, from a package to its own parent": Planted(
        "engines/weights/hub.py",
        "from .. import fleet",
        "engines.weights may not import engines.fleet",
    ),
    "sideways": Planted(
        "hosted/console/fields.py",
        "from causerie.hosted.management.views import KeyView",
        "hosted.console may not import hosted.management.views",
    ),
    "stage to stage": Planted(
        "routing/target_state.py",
        "from causerie.metering.meter import Record",
        "routing may not import metering.meter",
    ),
    "module of a room of which another one is allowed": Planted(
        "chat/generation.py",
        "from causerie.engines.fleet import Fleet",
        "chat may not import engines.fleet",
    ),
    "private name": Planted(
        "hosted/console/keys.py",
        "from causerie.hosted.accounts.passwords import _code",
        "hosted.console imports the private causerie.hosted.accounts.passwords._code",
    ),
    "private module": Planted(
        "hosted/management/usage.py",
        "from causerie.hosted.accounts._tables import rows",
        "hosted.management imports the private causerie.hosted.accounts._tables.rows",
    ),
    "settings": Planted(
        "catalog/model.py",
        "from causerie.settings.tree import Settings",
        "catalog may not import settings.tree",
    ),
    "loose module": Planted(
        "distributed/limits.py",
        "from causerie import pipeline",
        "distributed may not import pipeline",
    ),
    "for type checkers alone": Planted(
        "hosted/accounts/reports.py",
        "if TYPE_CHECKING:\n    from causerie.hosted.store.database import Database",
        "hosted.accounts may not import hosted.store.database",
    ),
    "inside a function": Planted(
        "distributed/connection.py",
        "def late() -> None:\n    import jinja2",
        "distributed may not import jinja2",
    ),
    "by a literal name": Planted(
        "observe/tracing.py",
        'importlib.import_module("causerie.hosted.console.routes")',
        "observe.tracing may not import hosted.console.routes",
    ),
    "by a computed name": Planted(
        "hosted/identity/provider.py",
        "__import__(name)",
        "hosted.identity may not import importlib.import_module",
    ),
    "standard library, kept for another room": Planted(
        "hosted/accounts/people.py",
        "import sqlite3",
        "hosted.accounts.people may not import sqlite3, which is kept for ['hosted.store'",
    ),
    "standard library, one name of a module": Planted(
        "probe/question.py",
        "from urllib.request import urlopen",
        "probe may not import urllib.request",
    ),
    "new loose module": Planted("stray.py", '"""Stray."""', "the module belongs to no room"),
    "new room": Planted("attic/__init__.py", '"""Attic."""', "the module belongs to no room"),
}


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What is found in a copy of the tree into which all of :data:`PLANTED` was put."""
    copy = tmp_path_factory.mktemp("planted") / "causerie"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for one in PLANTED.values():
        file = copy / one.file
        file.parent.mkdir(exist_ok=True)
        before = file.read_text(encoding="utf-8") if file.exists() else ""
        file.write_text(f"{before}\n{one.text}\n", encoding="utf-8")
    return violations(copy, TABLE)


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_violation_is_caught(reported: list[str], kind: str) -> None:
    planted = PLANTED[kind]
    found = [line for line in reported if line.startswith((f"{planted.file}:", f"{planted.file} "))]
    assert len(found) == 1, found
    assert planted.reported in found[0]


def test_nothing_but_what_was_planted_is_reported(reported: list[str]) -> None:
    assert len(reported) == len(PLANTED)


def test_a_permission_that_is_not_needed_is_noticed() -> None:
    generous = Room(frozenset(), frozenset({"rich"}))
    table = replace(TABLE, rooms={**TABLE.rooms, "errors": generous})
    assert unused(SOURCE, table) == ["errors imports no rich"]
