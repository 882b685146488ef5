"""Finds models by their id, alias or wildcard, and lists the models behind a door."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol, Self

from msgspec import UNSET, structs

from causerie.catalog.listing import TWISTS, Listing
from causerie.catalog.model import ModelCard, ServedModel, TargetCapabilities, TargetTariffs
from causerie.errors import NotFound
from causerie.protocol.events import Usage
from causerie.protocol.model_entries import Model
from causerie.protocol.nearest import AROUND, NameIndex, nearest
from causerie.protocol.request import ChatRequest
from causerie.protocol.targets import TimeBucket

# Limits, budgets and usage of a wildcard count under its id (`NAME*`), since clients can make up
# names.

WILDCARD = "*"


class WildcardModel(ServedModel):
    """All models whose names begin with a prefix, or, with ``rest``, the one that ends in it.

    ``known`` returns the rests that the providers list now; there may be others. ``priced``
    returns the tariffs for a rest, of targets with the rest in their names.
    """

    def __init__(
        self,
        card: ModelCard,
        capabilities: Iterable[TargetCapabilities],
        priced: Callable[[str], TargetTariffs],
        *,
        rest: str = WILDCARD,
        known: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._list_names_after_prefix, self._find_tariffs_by_name_rest = known, priced
        self._init_arguments = (card, tuple(capabilities), priced)
        self._name_after_prefix = rest
        super().__init__(card, self._init_arguments[1])
        self._may_cost_money = True  # perhaps, by what is named
        self.card = replace(card, id=self.prefix + rest)
        self.recorded = self.card.id

    @property
    def prefix(self) -> str:
        return self.id.removesuffix(WILDCARD)

    @property
    def names(self) -> Sequence[str]:
        return (self.id, self.card.id)

    @property
    def tariffs(self) -> TargetTariffs:
        return self._find_tariffs_by_name_rest(self._name_after_prefix)

    def cost(self, served_by: str, usage: Usage) -> int:
        return super().cost(served_by.replace(WILDCARD, self._name_after_prefix, 1), usage)

    @property
    def known(self) -> Sequence[str]:
        return [self.prefix + rest for rest in self._list_names_after_prefix()]

    def begins(self, name: str) -> bool:
        return name.startswith(self.prefix) and len(name) > len(self.prefix)

    def named(self, name: str) -> Self:
        rest = name.removeprefix(self.prefix)
        return type(self)(*self._init_arguments, rest=rest, known=self._list_names_after_prefix)

    def adapted(self, request: ChatRequest) -> ChatRequest:
        return structs.replace(request, wildcard=self._name_after_prefix)


Entry = ServedModel | Listing
_MOST_DISTANCE = 0.4
_LONGEST_NAME = 200  # a guess at what was meant takes the longer, the longer a name is


class Catalog:
    """All models; ids and aliases are unique.

    ``fetchable`` returns whether a name that is not here is one that `causerie pull` takes.
    """

    def __init__(
        self, entries: Iterable[Entry], fetchable: Callable[[str], bool] | None = None
    ) -> None:
        self._is_pullable_name = fetchable
        self._models = tuple(entries)
        self._models_by_name = {name: entry for entry in self._models for name in entry.names}
        wildcards = [entry for entry in self._models if isinstance(entry, WildcardModel)]
        self._wildcard_models = sorted(wildcards, key=lambda one: len(one.prefix), reverse=True)
        self._nearest_id_index = NameIndex(entry.id for entry in self._models)

    def resolve(self, visible: frozenset[str] | None, name: str) -> Entry:
        """Return the model of an id or alias, if it is among ``visible`` (``None``: all).

        An id of the router's catalog may have a suffix; other names may match a wildcard, of which
        the longest one wins. Raises :class:`NotFound`, which names the nearest id.
        """
        entry = (
            self._models_by_name.get(name)
            or self._find_model_variant(name)
            or self._find_wildcard(visible, name)
        )
        if entry is not None and (visible is None or entry.id in visible):
            return entry.named(name) if isinstance(entry, WildcardModel) else entry
        is_unknown = len(name) <= _LONGEST_NAME and name.lower() not in self._models_by_name
        if self._is_pullable_name is not None and is_unknown and self._is_pullable_name(name):
            raise NotFound(
                f"The model {name} is not on this machine; `causerie pull {name}` fetches it.",
                code="model_not_found",
                param="model",
            )
        close = self._find_nearest_id(visible, name)
        hint = f" Did you mean {close}?" if close else " GET /models lists those that there are."
        raise NotFound(
            f"There is no model {name[:200]} here.{hint}", code="model_not_found", param="model"
        )

    def visible(self, names: frozenset[str] | None) -> Sequence[Entry]:
        return [entry for entry in self._models if names is None or entry.id in names]

    def listed(self, names: frozenset[str] | None) -> Sequence[Listing]:
        return [
            entry
            for entry in self.visible(names)
            if isinstance(entry, Listing) and not entry.is_over
        ]

    def shown(
        self, visible: frozenset[str] | None, allowed: frozenset[str] | None = None
    ) -> Iterator[tuple[Entry, Sequence[str]]]:
        """Yield each listed model with its names: of a wildcard those known, else its pattern."""
        for entry in self.visible(visible):
            if isinstance(entry, WildcardModel):
                names = self._list_wildcard_names(entry, visible, allowed)
            else:
                names = (entry.id,) if allowed is None or allowed & {*entry.names} else ()
            if names:
                yield entry, names

    def _find_nearest_id(self, visible: frozenset[str] | None, unknown_name: str) -> str | None:
        few = visible if visible is not None and len(visible) <= 4 * AROUND else None
        candidates = self._nearest_id_index.around(unknown_name) if few is None else few
        known = (
            each
            for each in candidates
            if (visible is None or each in visible)
            and (entry := self._models_by_name.get(each)) is not None
            and not is_over(entry)
        )
        return nearest(unknown_name, known, _MOST_DISTANCE)

    def _list_wildcard_names(
        self,
        wildcard: WildcardModel,
        visible: frozenset[str] | None,
        allowed_names: frozenset[str] | None,
    ) -> Sequence[str]:
        # Other names that begin alike are exact names or have a longer wildcard.
        whole = allowed_names is None or wildcard.id in allowed_names
        more = () if allowed_names is None else sorted(allowed_names)
        names = [
            name
            for name in dict.fromkeys([*wildcard.known, *more])
            if name not in self._models_by_name and self._find_wildcard(visible, name) is wildcard
        ]
        if whole:
            return names or (wildcard.id,)
        return [name for name in names if name in more]

    def _find_wildcard(self, visible: frozenset[str] | None, name: str) -> WildcardModel | None:
        for wildcard in self._wildcard_models:
            if (visible is None or wildcard.id in visible) and wildcard.begins(name):
                return wildcard
        return None

    def _find_model_variant(self, suffixed_name: str) -> Listing | None:
        base, colon, suffix = suffixed_name.rpartition(":")
        twist = TWISTS.get(suffix)
        entry = self._models_by_name.get(base) if colon and twist is not None else None
        if twist is None or not isinstance(entry, Listing):
            return None
        return entry.twisted(twist)


def named_entry(entry: Entry, name: str) -> Entry:
    """Return the model that a wildcard entry has for ``name``, else the entry itself."""
    wild = isinstance(entry, WildcardModel) and entry.begins(name) and name != entry.id
    return entry.named(name) if wild and isinstance(entry, WildcardModel) else entry


def entries_of(
    model: Entry, names: Sequence[str], *, reasoning_object: bool = False
) -> Iterator[Model]:
    """Yield an entry of ``GET /models`` for each name of a model, with its price."""
    entry = model.entry(reasoning_object=reasoning_object)
    for name in names:
        if isinstance(model, WildcardModel) and name != model.id:
            found = model.named(name).tariffs
            prices = {"pricing": found.dearest.entry(), "list_price": found.listed or UNSET}
            yield structs.replace(entry, id=name, **prices)
        else:
            yield structs.replace(entry, id=name)


def is_over(entry: Entry) -> bool:
    return isinstance(entry, Listing) and entry.is_over


DayReader = Callable[[str], Sequence[TimeBucket]]
"""Returns the last day of a target by its name, in quarters of an hour, the oldest first."""


class MonthsReader(Protocol):
    """Returns the sums of several targets for each of the last 90 days (UTC), oldest first."""

    def __call__(self, *targets: str) -> Sequence[TimeBucket]: ...


class DoorCatalog:
    """The models behind one door; ``prefix`` is the path of its base URL."""

    def __init__(
        self,
        prefix: str,
        models: frozenset[str],
        catalog: Catalog,
        history: DayReader,
        days: MonthsReader,
    ) -> None:
        self.prefix = prefix
        self.history, self.days = history, days
        self._model_ids_of_this_door, self._catalog = models, catalog

    def entries(self) -> Sequence[Listing]:
        return self._catalog.listed(self._model_ids_of_this_door)

    def entry(self, name: str) -> Listing:
        """Return an entry by any of its names, also with a suffix; raise :class:`NotFound`."""
        if len(name) > _LONGEST_NAME:
            raise NotFound("There is no model of that name here.")
        found = self._catalog.resolve(self._model_ids_of_this_door, name)
        if not isinstance(found, Listing) or found.is_over:
            raise NotFound(f"The catalog has no model {name} any more.")
        return found
