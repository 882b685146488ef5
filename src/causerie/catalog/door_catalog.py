"""The router's catalog as the public pages see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from causerie.catalog.catalog import Catalog
from causerie.catalog.listing import Listing
from causerie.errors import NotFound
from causerie.protocol.target_stats import TimeBucket

_LONGEST_NAME = 200  # a guess at what was meant takes the longer, the longer a name is

DayReader = Callable[[str], Sequence[TimeBucket]]
"""The last day of a target, by its name: in quarters of an hour, the oldest first."""


class DoorCatalog:
    """The models behind one door; ``prefix`` is the path of its base URL."""

    def __init__(
        self, prefix: str, models: frozenset[str], catalog: Catalog, history: DayReader
    ) -> None:
        self.prefix = prefix
        self.history = history
        self._models = models
        self._catalog = catalog

    def entries(self) -> Sequence[Listing]:
        return self._catalog.listed(self._models)

    def entry(self, name: str) -> Listing:
        """Return one by its id, with one of its suffixes, or another of its names.

        Raises :class:`NotFound`.
        """
        if len(name) > _LONGEST_NAME:
            raise NotFound("There is no model of that name here.")
        found = self._catalog.resolve(self._models, name)
        if not isinstance(found, Listing) or found.is_over:
            raise NotFound(f"The catalog has no model {name} any more.")
        return found
