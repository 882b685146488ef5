"""A wildcard: all names that begin alike, each answered by the provider's model of the rest.

Its id ends in ``*``. Limits, budgets and usage count under that id, so that a client cannot make
names without end; a key may allow the id or one full name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Self

from msgspec import structs

from causerie.catalog.model import ModelCard, ServedModel, TargetCapabilities
from causerie.catalog.tariff import Tariff
from causerie.protocol.request import ChatRequest

WILDCARD = "*"


class WildcardModel(ServedModel):
    """All models of one beginning, or with ``rest`` the one that a request has named.

    ``known`` gives the rests that the providers list now; there may be others.
    """

    __slots__ = ("_known", "_parts", "_rest")

    def __init__(
        self,
        card: ModelCard,
        capabilities: Iterable[TargetCapabilities],
        tariff: Tariff,
        *,
        rest: str = WILDCARD,
        known: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._known = known
        self._parts = (card, tuple(capabilities), tariff)
        self._rest = rest
        super().__init__(card, self._parts[1], tariff)
        self.card = replace(card, id=self.prefix + rest)

    @property
    def prefix(self) -> str:
        return self.id.removesuffix(WILDCARD)

    @property
    def names(self) -> Sequence[str]:
        """The id of the wildcard, and the name that was asked for."""
        return (self.id, self.card.id)

    @property
    def known(self) -> Sequence[str]:
        """The names that the providers list now."""
        return [self.prefix + rest for rest in self._known()]

    def begins(self, name: str) -> bool:
        """Return true if the name is one of this beginning."""
        return name.startswith(self.prefix) and len(name) > len(self.prefix)

    def named(self, name: str) -> Self:
        """Return the model of that name, which begins as it must."""
        return type(self)(*self._parts, rest=name.removeprefix(self.prefix), known=self._known)

    def adapted(self, request: ChatRequest) -> ChatRequest:
        """The request for the provider's model, which is the rest of the name."""
        return structs.replace(request, model=self._rest)
