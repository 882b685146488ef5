"""What the public catalog asks of its entries, their endpoints and their prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Protocol

from causerie.protocol.events import Usage
from causerie.protocol.standing import Stretch


class Tariff(Protocol):
    """Money for one token of each kind, and for a request."""

    @property
    def prompt(self) -> Decimal: ...
    @property
    def completion(self) -> Decimal: ...
    @property
    def cached(self) -> Decimal | None: ...
    @property
    def request(self) -> Decimal: ...
    @property
    def reasoning(self) -> Decimal | None: ...
    def cost(self, usage: Usage) -> Decimal:
        """Of one reply, as it is charged."""
        ...


class Profile(Protocol):
    """What is known of an endpoint's model."""

    @property
    def context_length(self) -> int | None: ...
    @property
    def max_output_tokens(self) -> int | None: ...
    @property
    def images(self) -> bool: ...
    @property
    def thinks(self) -> bool: ...


class Supply(Protocol):
    """One endpoint of an entry; ``name`` is the target's, ``probed`` when it was measured."""

    @property
    def name(self) -> str: ...
    @property
    def provider(self) -> str: ...
    @property
    def tariff(self) -> Tariff: ...
    @property
    def profile(self) -> Profile: ...
    @property
    def parameters(self) -> frozenset[str]: ...
    @property
    def quantization(self) -> str | None: ...
    @property
    def private(self) -> bool: ...
    @property
    def probed(self) -> date | None: ...
    @property
    def measured(self) -> bool:
        """Whether anything is known of its parameters."""
        ...


class Card(Protocol):
    """Words for people."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...


class Listed(Protocol):
    """An entry. ``latency`` is in seconds, ``throughput`` in tokens a second."""

    @property
    def id(self) -> str: ...
    @property
    def card(self) -> Card: ...
    @property
    def supplies(self) -> Sequence[Supply]: ...
    @property
    def cheapest(self) -> Supply: ...
    @property
    def parameters(self) -> frozenset[str]: ...
    @property
    def price(self) -> Decimal: ...
    @property
    def created(self) -> int: ...
    @property
    def ends(self) -> date | None: ...
    @property
    def context_length(self) -> int | None: ...
    @property
    def throughput(self) -> float | None: ...
    @property
    def latency(self) -> float | None: ...
    @property
    def twist(self) -> str | None: ...
    def entry(self) -> Mapping[str, Any]:
        """As ``GET /models`` shows it."""
        ...

    def endpoints(self) -> Mapping[str, Any]:
        """As ``GET /models/ID/endpoints`` shows it."""
        ...


class Market(Protocol):
    """The catalog behind the router's door; ``prefix`` is the path of its base address."""

    @property
    def prefix(self) -> str: ...
    def entries(self) -> Sequence[Listed]:
        """All of them."""
        ...

    def entry(self, name: str) -> Listed:
        """One; raises :class:`NotFound`."""
        ...

    def history(self, target: str) -> Sequence[Stretch]:
        """The last day of an endpoint, in quarters of an hour, the oldest first."""
        ...
