"""The fields of an address that asks something of the catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

Fields = Mapping[str, Sequence[str]]
"""All values of each field, without white space around them."""


def fields(pairs: Iterable[tuple[str, str]]) -> Fields:
    """Group values by their names, in their order."""
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value.strip())
    return found


def first(given: Fields, name: str) -> str:
    """Return the first value of a field; empty where the field is missing."""
    return given[name][0] if name in given else ""
