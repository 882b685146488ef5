"""Compares what the modules of a source tree import with the table of ``[tool.causerie]``.

A *room* is a row of the table. A module belongs to the row with the longest name that its own
name begins with, and a module that no row names belongs nowhere. All imports count: those inside
functions, those for type checkers alone, and literal ones of ``import_module``.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PACKAGE = "causerie"
_DYNAMIC = {"import_module", "__import__"}
_COMPUTED = ("importlib", "import_module")  # an import of whatever it may be


@dataclass(frozen=True)
class Room:
    """One row: which other rooms or modules of them, and which packages, a room may import."""

    rooms: frozenset[str]
    packages: frozenset[str]


@dataclass(frozen=True)
class Table:
    """Who may import whom; what no row allows is denied.

    ``standard`` names modules of the standard library that are kept for the rooms listed there.
    """

    rooms: Mapping[str, Room]
    standard: Mapping[str, frozenset[str]]

    @classmethod
    def read(cls, pyproject: Path) -> Table:
        """Read the table of a ``pyproject.toml``."""
        tool = tomllib.loads(pyproject.read_text(encoding="utf-8"))["tool"][PACKAGE]
        return cls(
            {
                name: Room(frozenset(row["rooms"]), frozenset(row["packages"]))
                for name, row in tool["rooms"].items()
            },
            {name: frozenset(rooms) for name, rooms in tool["standard"].items()},
        )

    def room_of(self, module: str) -> str | None:
        """Return the room of a module (its name without the package's), or ``None``."""
        return next((name for name in _prefixes(module) if name in self.rooms), None)

    def allows(self, importer: str, imported: str) -> bool:
        """Return whether a module of the package may import another one."""
        room = self.room_of(importer)
        if room is None or room == self.room_of(imported):
            return room is not None
        return not self.rooms[room].rooms.isdisjoint(_prefixes(imported))


@dataclass(frozen=True)
class Import:
    """One imported module or name, dotted and absolute, as it stands in ``place``: file:line."""

    importer: str
    imported: str
    name: str
    place: str

    @property
    def whole(self) -> str:
        """Return the module and the name out of it as one dotted name."""
        return f"{self.imported}.{self.name}".rstrip(".")


def violations(source: Path, table: Table) -> list[str]:
    """Return each import in ``source`` that the table denies, and each module without a room."""
    modules = _modules(source)
    found = [
        f"{path.relative_to(source)}: the module belongs to no room; give it a row in "
        f"[tool.{PACKAGE}.rooms], or move it into a room"
        for module, path in modules.items()
        if module and table.room_of(module) is None
    ]
    denied = [
        f"{one.place}: {reason}"
        for one in _imports(source, modules)
        if (reason := _denial(one, table))
    ]
    return [*found, *dict.fromkeys(denied)]  # of several names in a line one is enough


def unused(source: Path, table: Table) -> list[str]:
    """Return the permissions of the table that no import needs."""
    needed: set[tuple[str, str]] = set()
    for one in _imports(source, _modules(source)):
        room = table.room_of(one.importer) or ""
        needed |= {(room, name) for name in _prefixes(_inside(one.imported) or one.whole)}
    given = [(name, entry) for name, row in table.rooms.items() for entry in row.rooms]
    given += [(name, entry) for name, row in table.rooms.items() for entry in row.packages]
    given += [(room, name) for name, rooms in table.standard.items() for room in rooms]
    return sorted(
        f"{room} imports no {entry}" for room, entry in given if (room, entry) not in needed
    )


def order(table: Table) -> list[str]:
    """Return the rooms, each behind those that it may import; raise ``ValueError`` for a cycle."""
    below = {
        name: {table.room_of(entry) for entry in row.rooms} - {name}
        for name, row in table.rooms.items()
    }
    sorted_rooms: list[str] = []
    while below:
        ready = sorted(name for name in below if below[name] <= set(sorted_rooms))
        if not ready:
            raise ValueError(f"these rooms may import each other in a circle: {sorted(below)}")
        sorted_rooms += ready
        for name in ready:
            del below[name]
    return sorted_rooms


def loose(source: Path) -> list[str]:
    """Return the modules that stand directly in the package."""
    return sorted(path.name for path in source.glob("*.py"))


def _denial(one: Import, table: Table) -> str | None:
    """Return why an import is denied, and which line of the table would allow it."""
    room = table.room_of(one.importer)
    inside = _inside(one.imported)
    if room is None or inside == "":
        return None
    if inside is None:
        return _foreign(one, room, table)
    private = any(part.startswith("_") for part in (*inside.split("."), one.name))
    if private and table.room_of(inside) != room:
        return f"{room} imports the private {one.whole}"
    if table.allows(one.importer, inside):
        return None
    return f"{room} may not import {inside}; its row allows {sorted(table.rooms[room].rooms)}"


def _foreign(one: Import, room: str, table: Table) -> str | None:
    top = one.imported.partition(".")[0]
    if top not in sys.stdlib_module_names:
        allowed = table.rooms[room].packages
        return None if top in allowed else f"{room} may not import {top}, only {sorted(allowed)}"
    kept = next((name for name in _prefixes(one.whole) if name in table.standard), None)
    if kept is None or room in table.standard[kept]:
        return None
    return f"{room} may not import {kept}, which is kept for {sorted(table.standard[kept])}"


def _modules(source: Path) -> dict[str, Path]:
    """Return the files of a tree by their modules' names without the package's."""
    return {_module(path.relative_to(source)): path for path in sorted(source.rglob("*.py"))}


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(source: Path, modules: Mapping[str, Path]) -> Iterator[Import]:
    for module, path in modules.items():
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        file = f"{path.relative_to(source)}"
        for imported, name, line in _named_in(path.read_text(encoding="utf-8"), package):
            yield _import(module, imported, name, modules, f"{file}:{line}")


def _import(
    importer: str, imported: str, name: str, modules: Mapping[str, Path], place: str
) -> Import:
    """Make one; a name that is a module of the package itself belongs to what is imported."""
    inside = _inside(imported)
    if inside is not None and name and f"{inside}.{name}".lstrip(".") in modules:
        imported, name = f"{imported}.{name}", ""
    return Import(importer, imported, name, place)


@cache
def _named_in(text: str, package: str) -> tuple[tuple[str, str, int], ...]:
    """Return what a text of a package imports, with lines; many tests read the same texts."""
    return tuple(
        (imported, name, getattr(node, "lineno", 1))
        for node in ast.walk(ast.parse(text))
        for imported, name in _named(node, package)
    )


def _named(node: ast.AST, package: str) -> Iterator[tuple[str, str]]:
    """Yield what a node imports: an absolute module, and the name out of it."""
    match node:
        case ast.Import(names):
            yield from ((alias.name, "") for alias in names)
        case ast.ImportFrom(module, names, level):
            base = module or ""
            if level:
                parts = [PACKAGE, *package.split(".")] if package else [PACKAGE]
                base = ".".join([*parts[: len(parts) - level + 1], *([module] if module else [])])
            yield from ((base, alias.name) for alias in names)
        case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called), args=[first, *_]):
            if called in _DYNAMIC:
                match first:
                    case ast.Constant(str(literal)):
                        yield literal, ""
                    case _:
                        yield _COMPUTED


def _inside(module: str) -> str | None:
    """Return the rest of the name of a module of the package, ``None`` for a foreign one."""
    top, _, rest = module.partition(".")
    return rest if top == PACKAGE else None


def _prefixes(name: str) -> Iterator[str]:
    """Yield ``a.b.c``, ``a.b``, ``a``."""
    while name:
        yield name
        name = name.rpartition(".")[0]
