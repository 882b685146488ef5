"""Place of a schema in its document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from causerie.chat.schema.keywords import IN_PLACE


@dataclass(frozen=True, slots=True)
class Place:
    """A schema and where it stands; ``alone`` if no other schema speaks of the same value."""

    schema: Mapping[str, object]
    pointer: str
    depth: int
    alone: bool

    def others(self, key: str) -> list[str]:
        """Return the keywords alongside ``key``."""
        return [name for name in self.schema if name != key]

    @property
    def by_itself(self) -> bool:
        """Return whether no other schema, not even a part of this one, applies to the value."""
        return self.alone and not any(name in IN_PLACE for name in self.schema)
