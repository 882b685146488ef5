"""Copy fields of the same names from one dataclass or struct into another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def alike(kind: type[T], source: object, **others: Any) -> T:
    """Return a new ``kind`` with ``others`` as fields, and the rest copied from ``source``."""
    names: Iterable[str] = getattr(kind, "__struct_fields__", ())
    names = names or getattr(kind, "__dataclass_fields__", ())
    same = [name for name in names if name not in others and hasattr(source, name)]
    return kind(**{name: getattr(source, name) for name in same}, **others)
