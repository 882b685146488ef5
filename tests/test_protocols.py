"""A Protocol has two implementations, or stands where the table of imports keeps a class away."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from roomkit import Table
from sourcekit import READS_SOURCE, nodes

TABLE = Table.read(Path(__file__).parents[1] / "pyproject.toml")

pytestmark = READS_SOURCE


@dataclass(frozen=True)
class Class:
    """A class of the tree, with the names that it defines itself."""

    module: str
    name: str
    bases: tuple[str, ...]
    own: frozenset[str]

    @property
    def is_protocol(self) -> bool:
        return "Protocol" in self.bases


class Classes:
    """All classes of a tree; bases are looked up by their names."""

    def __init__(self, classes: Iterable[tuple[str, ast.ClassDef]]) -> None:
        self.found = [_class(Path(name), node) for name, node in classes]
        self._by_name = {one.name: one for one in self.found}
        self._members = {one: self._inherited(one) for one in self.found}

    def _inherited(self, one: Class) -> frozenset[str]:
        """Return its names and those of its bases."""
        bases = [self._by_name[base] for base in one.bases if base in self._by_name]
        return one.own.union(*(self._inherited(base) for base in bases if base is not one))

    def implementations(self, protocol: Class) -> list[Class]:
        """Return the classes that have all members of a Protocol."""
        wanted = self._members[protocol]
        return [one for one in self.found if not one.is_protocol and wanted <= self._members[one]]

    def mirrors(self, table: Table) -> Iterator[str]:
        """Yield the Protocols whose one implementation their room might import itself."""
        for protocol in self.found:
            if not protocol.is_protocol or "__call__" in protocol.own:
                continue
            found = self.implementations(protocol)
            if len(found) == 1 and table.allows(protocol.module, found[0].module):
                yield f"{protocol.module}.{protocol.name}: use {found[0].module}.{found[0].name}"


def _class(path: Path, node: ast.ClassDef) -> Class:
    own: set[str] = set()
    for part in ast.walk(node):
        match part:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.Name(name, ast.Store()):
                own.add(name)
            case ast.Attribute(ast.Name("self"), name, ast.Store()):
                own.add(name)
    bases = tuple(ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases)
    return Class(".".join(path.with_suffix("").parts), node.name, bases, frozenset(own))


def test_no_protocol_mirrors_a_class_within_reach() -> None:
    assert [*Classes(nodes(ast.ClassDef)).mirrors(TABLE)] == []


def test_a_mirror_is_noticed() -> None:
    """One of a class in its own room; not one of two classes, nor one at a boundary."""
    planted = [
        (file, node)
        for file, text in _PLANTED.items()
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef)
    ]
    assert list(Classes(planted).mirrors(TABLE)) == ["http.port.Mirror: use http.wall.Wall"]


_PLANTED = {
    "http/port.py": """
class Mirror(Protocol):
    def reflect(self) -> None: ...
class Either(Protocol):
    @property
    def heads(self) -> int: ...
class Boundary(Protocol):
    async def cross(self) -> None: ...
""",
    "http/wall.py": """
class Wall:
    def reflect(self) -> None: ...
class Coin:
    heads: int
class Base:
    def __init__(self) -> None:
        self.heads = 1
""",
    "composition/gate.py": """
class Gate:
    async def cross(self) -> None: ...
""",
}
