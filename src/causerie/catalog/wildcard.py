"""A wildcard: all names that begin alike, each answered by the provider's model of the rest.

Its id ends in ``*``. Limits, budgets and usage count under that id, so that a client cannot make
names without end; a key may allow the id or one full name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Self

from msgspec import structs

from causerie.catalog.model import ModelCard, ServedModel, TargetCapabilities
from causerie.catalog.tariff import Tariff
from causerie.protocol.request import ChatRequest

WILDCARD = "*"


class WildcardModel(ServedModel):
    """All models of one beginning, or with ``rest`` the one that a request has named."""

    __slots__ = ("_parts", "_rest")

    def __init__(
        self,
        card: ModelCard,
        capabilities: Iterable[TargetCapabilities],
        hedge_seconds: float | None,
        tariff: Tariff,
        rest: str = WILDCARD,
    ) -> None:
        self._parts = (card, tuple(capabilities), hedge_seconds, tariff)
        self._rest = rest
        super().__init__(card, self._parts[1], hedge_seconds, tariff)
        self.card = replace(card, id=self.prefix + rest)

    @property
    def prefix(self) -> str:
        """The beginning of the names."""
        return self.id.removesuffix(WILDCARD)

    @property
    def names(self) -> Sequence[str]:
        """The id of the wildcard, and the name that was asked for."""
        return (self.id, self.card.id)

    def named(self, name: str) -> Self:
        """Return the model of that name, which begins as it must."""
        return type(self)(*self._parts, rest=name.removeprefix(self.prefix))

    def adapted(self, request: ChatRequest) -> ChatRequest:
        """The request for the provider's model, which is the rest of the name."""
        return structs.replace(request, model=self._rest)
