"""Names that docstrings and comments refer to exist."""

from __future__ import annotations

import ast
import builtins
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from casekit import each_of
from sourcekit import READS_SOURCE, nodes, trees
from sourcekit import SOURCE as PACKAGE

SOURCE = PACKAGE.parent
pytestmark = READS_SOURCE

_REFERENCE = re.compile(r":(?:class|func|meth|mod|data|attr|exc):`([^`]+)`")


def test_every_reference_leads_to_something() -> None:
    missing = [
        f"{file.relative_to(SOURCE)}: {name}"
        for file in (PACKAGE / name for name in trees())
        for name, owner in _references(file)
        if not _exists(_module(file), owner, name)
    ]
    assert missing == []


@each_of(
    ("name", "found"),
    [
        ("~causerie.errors.ServiceError", True),
        ("causerie.errors", True),
        ("ServiceError", True),
        (".no_such_module", False),
        ("~causerie.errors.NoSuchError", False),
        ("NoSuchError", False),
    ],
)
def test_what_does_not_exist_is_found(name: str, found: bool) -> None:
    assert _exists("causerie.errors", "", name) is found


def _references(file: Path) -> Iterator[tuple[str, str]]:
    """Yield each reference with the class whose docstring, or member's docstring, has it."""
    text = file.read_text(encoding="utf-8")
    if not _REFERENCE.search(text):
        return
    classes = _classes_in(str(file.relative_to(PACKAGE)))
    for number, line in enumerate(text.split("\n"), start=1):
        owners = [each.name for each in classes if each.lineno <= number <= (each.end_lineno or 0)]
        for name in _REFERENCE.findall(line):
            yield name, owners[-1] if owners else ""


def _module(file: Path) -> str:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _exists(module: str, owner: str, name: str) -> bool:
    name = name.removeprefix("~").removesuffix("()")
    if name.startswith("."):
        package = module if _is_package(module) else module.rpartition(".")[0]
        return _resolves(f"{package}{name}")
    if name.startswith("causerie"):
        return _resolves(name)
    places = [f"{module}.{owner}.{name}", f"{module}.{name}"] if owner else [f"{module}.{name}"]
    known = hasattr(builtins, name) or name in _classes()
    return known or any(map(_resolves, places)) or _resolves(name)


def _classes_in(name: str) -> list[ast.ClassDef]:
    return _by_file().get(name, [])


@cache
def _by_file() -> dict[str, list[ast.ClassDef]]:
    found: dict[str, list[ast.ClassDef]] = {}
    for name, node in nodes(ast.ClassDef):
        found.setdefault(name, []).append(node)
    return found


@cache
def _classes() -> frozenset[str]:
    """Return the names of all classes: an error is often named far from where it is defined."""
    bodies = (node for tree in trees().values() for node in tree.body)
    return frozenset(node.name for node in bodies if isinstance(node, ast.ClassDef))


def _is_package(module: str) -> bool:
    return (SOURCE / Path(*module.split("."), "__init__.py")).is_file()


def _resolves(name: str) -> bool:
    """Return whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            annotations = getattr(found, "__annotations__", {})
            slots = getattr(found, "__slots__", ())
            if not hasattr(found, part) and part not in annotations and part not in slots:
                return False
            found = getattr(found, part, None)
        return True
    return False
