"""The router's catalog as the public pages see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from causerie.catalog.catalog import Catalog
from causerie.catalog.listing import Listing
from causerie.errors import NotFound
from causerie.protocol.target_stats import TimeBucket

_LONGEST_NAME = 200  # a guess at what was meant takes the longer, the longer a name is


class DoorCatalogParts(Protocol):
    """The parts in force."""

    @property
    def catalog(self) -> Catalog: ...
    def history(self, target: str) -> Sequence[TimeBucket]:
        """The last day of a target, in quarters of an hour."""
        ...


class DoorCatalog:
    """Models behind one door; ``prefix`` is the path of its base URL."""

    def __init__(self, prefix: str, models: frozenset[str], parts: DoorCatalogParts) -> None:
        self.prefix = prefix
        self._models = models
        self._parts = parts

    def entries(self) -> Sequence[Listing]:
        """All that are not over."""
        return self._parts.catalog.listed(self._models)

    def entry(self, name: str) -> Listing:
        """One by its id, with one of its suffixes, or another of its names.

        Raises :class:`NotFound`.
        """
        if len(name) > _LONGEST_NAME:
            raise NotFound("There is no model of that name here.")
        found = self._parts.catalog.resolve(self._models, name)
        if not isinstance(found, Listing) or found.is_over:
            raise NotFound(f"The catalog has no model {name} any more.")
        return found

    def history(self, target: str) -> Sequence[TimeBucket]:
        """The last day of a target, in quarters of an hour."""
        return self._parts.history(target)
