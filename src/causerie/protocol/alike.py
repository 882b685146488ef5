"""Objects that are made of others by the names of their fields."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def alike(kind: type[T], source: object, **others: Any) -> T:
    """Return an object with what the source has under the same names, and the ``others``.

    ``kind`` is a dataclass or a struct. Fields that neither gives keep their defaults.
    """
    names: Iterable[str] = getattr(kind, "__struct_fields__", ())
    names = names or getattr(kind, "__dataclass_fields__", ())
    same = [name for name in names if name not in others and hasattr(source, name)]
    return kind(**{name: getattr(source, name) for name in same}, **others)
