"""Dynamic references to what several documents of a schema could answer.

``$dynamicRef`` and ``$recursiveRef`` lead to the outermost document that was entered on the way
and has the anchor. So each part that is referred to is copied for each set of such documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from causerie.chat.schema.addresses import (
    ANCHORS,
    BY_NAME,
    DATA,
    DEEPEST,
    DEFINITIONS,
    REFERENCES,
    Addresses,
    joined,
)
from causerie.chat.schema.keywords import is_applied

_MOST_COPIES = 400
_PREFIX = "#/$defs/"

Entered = tuple[tuple[str, str], ...]
"""For each dynamic anchor, the outermost document entered that has it; sorted by the anchor."""


class _TooMany(Exception):
    """The schema would be copied too often."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """The document that a part is in, and those that lead there."""

    base: str
    entered: Entered


@dataclass(slots=True)
class DynamicScope:
    """Copies the parts of one schema."""

    found: Addresses
    _names: dict[tuple[str, Entered], str] = field(default_factory=dict)
    _waiting: list[tuple[str, Entered]] = field(default_factory=list)

    def unrolled(self) -> Mapping[str, object] | None:
        """Return a schema that says the same with ``$ref`` alone; ``None`` if it is too long."""
        base = self.found.base("#")
        scope = self._entering((), base)
        self._names["#", scope.entered] = "#"
        try:
            whole = self._moved(self.found.whole, scope)
            assert isinstance(whole, dict)
            definitions: dict[str, object] = {}
            while self._waiting:
                place, entered = self._waiting.pop()
                scope = _Scope(self.found.base(place), entered)
                name = self._names[place, entered].removeprefix(_PREFIX)
                definitions[name] = self._moved(self.found.part(place), scope)
        except _TooMany:
            return None
        return {**whole, "$defs": definitions}

    def _entering(self, entered: Entered, base: str) -> _Scope:
        """Return the scope in a document that is entered from within others."""
        outer = dict(entered)
        for name, documents in self.found.dynamic.items():
            if base in documents:
                outer.setdefault(name, base)
        return _Scope(base, tuple(sorted(outer.items())))

    def _copy(self, place: str, entered: Entered) -> str:
        """Return the reference to a copy of a part."""
        scope = self._entering(entered, self.found.base(place))
        target = place, scope.entered
        if target not in self._names:
            if len(self._names) >= _MOST_COPIES:
                raise _TooMany
            self._names[target] = f"{_PREFIX}{len(self._names)}"
            self._waiting.append(target)
        return self._names[target]

    def _moved(self, value: object, scope: _Scope, depth: int = 0) -> object:
        if depth > DEEPEST:
            return value
        if isinstance(value, list):
            return [self._moved(item, scope, depth + 1) for item in value]
        if not isinstance(value, Mapping):
            return value
        named = value.get("$id")
        if isinstance(named, str) and not named.startswith("#"):
            scope = self._entering(scope.entered, joined(scope.base, named))
        out: dict[str, object] = {}
        for key, of in value.items():
            if key in REFERENCES and isinstance(of, str):
                out |= self._reference(key, of, scope)
            elif key in BY_NAME and isinstance(of, Mapping):
                if key not in DEFINITIONS:
                    out[key] = {name: self._moved(each, scope, depth + 2)
                                for name, each in of.items()}  # fmt: skip
            elif key not in ANCHORS and (key != "$id" or scope.base in self.found.torn):
                applied = key not in DATA and is_applied(key)
                out[key] = self._moved(of, scope, depth + 1) if applied else of
        return out

    def _reference(self, key: str, value: str, scope: _Scope) -> dict[str, object]:
        target = joined(scope.base, value)
        if key != "$ref":
            target = self._outermost(target, scope)
        place = self.found.place(target)
        if place is None or self.found.part(place) is None:
            return {key: value}
        return {"$ref": self._copy(place, scope.entered)}

    def _outermost(self, target: str, scope: _Scope) -> str:
        """Return the address that a dynamic reference to ``target`` leads to."""
        document, _, name = target.partition("#")
        if document not in self.found.dynamic.get(name, ()):
            return target  # nothing dynamic there: as `$ref`
        outer = dict(scope.entered).get(name, document)
        return f"{outer}#{name}" if name else outer
