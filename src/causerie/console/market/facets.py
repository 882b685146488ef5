"""Facets of a catalog: only those that set some of its entries apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from causerie.catalog.search import Searchable, gives
from causerie.console.catalogue import grouped


@dataclass(frozen=True, slots=True)
class Facets:
    """``authors`` with how many entries each has; ``parameters`` by what they are for."""

    authors: Sequence[tuple[str, int]]
    parameters: Sequence[tuple[str, Sequence[str]]]
    takes: Sequence[str]
    gives: Sequence[str]
    ending: bool
    free: bool
    """Some cost nothing, and some cost something."""


def facets(entries: Sequence[Searchable]) -> Facets:
    """Of all entries, whatever is searched for."""
    authors = Counter(one.id.partition("/")[0] for one in entries if "/" in one.id)
    parameters = frozenset[str]().union(*{one.parameters for one in entries})
    return Facets(
        sorted(authors.items(), key=lambda each: each[0].casefold()),
        grouped(sorted(parameters)),
        sorted(frozenset[str]().union(*{one.input_modalities for one in entries})),
        sorted(frozenset[str]().union(*{gives(one) for one in entries})),
        any(one.ends is not None for one in entries),
        0 < sum(one.price == 0 for one in entries) < len(entries),
    )
