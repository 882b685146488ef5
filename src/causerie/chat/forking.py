"""Copies of readers, so that two of them can go on from the same place in a text.

Copying takes time in proportion to the reader's own state, not to what it has read: texts,
constants and schemas are shared.
"""

from __future__ import annotations

from copy import copy
from enum import Enum
from types import MethodType
from typing import Any, TypeVar, cast

_T = TypeVar("_T")
_ROOM = f"{__package__}."


def fork(reader: _T) -> _T:
    """Return a copy of a reader; neither of the two sees what the other reads from now on.

    Lists and sets are copied, and objects of this package that change. Dictionaries are not: in
    readers they are schemas. An object that can be copied faster, or not in this way, has a
    ``__copy__``.
    """
    return cast(_T, _forked(reader, {}))


def _forked(value: Any, known: dict[int, Any]) -> Any:
    kind = type(value)
    if kind is list:
        return [_forked(item, known) for item in value]
    if kind is set:
        return set(value)
    if kind is MethodType:
        return MethodType(value.__func__, _forked(value.__self__, known))
    if _is_shared(kind):
        return value
    if id(value) not in known:
        known[id(value)] = _forked_object(value, known)
    return known[id(value)]


def _forked_object(value: Any, known: dict[int, Any]) -> Any:
    kind = type(value)
    if hasattr(kind, "__copy__"):
        return copy(value)
    other = known[id(value)] = object.__new__(kind)
    for name in _fields(value):
        object.__setattr__(other, name, _forked(getattr(value, name), known))
    return other


def _fields(value: Any) -> list[str]:
    slots = [name for kind in type(value).__mro__ for name in kind.__dict__.get("__slots__", ())]
    names = [*slots, *getattr(value, "__dict__", ())]
    return [name for name in names if hasattr(value, name)]


def _is_shared(kind: type) -> bool:
    """Return whether objects of a class never change: others' classes, enums and frozen ones."""
    foreign = not kind.__module__.startswith(_ROOM)
    return foreign or issubclass(kind, Enum) or kind.__setattr__ is not object.__setattr__
