"""Interface of the public catalog's entries, their endpoints and their prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Protocol

from causerie.protocol.events import Usage
from causerie.protocol.target_stats import TimeBucket


class TariffView(Protocol):
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


class ProfileView(Protocol):
    """Known facts of an endpoint's model."""

    @property
    def context_length(self) -> int | None: ...
    @property
    def max_output_tokens(self) -> int | None: ...
    @property
    def images(self) -> bool: ...
    @property
    def thinks(self) -> bool: ...


class ListedEndpoint(Protocol):
    """One endpoint of an entry; ``name`` is the target's, ``probed`` when it was measured."""

    @property
    def name(self) -> str: ...
    @property
    def provider(self) -> str: ...
    @property
    def tariff(self) -> TariffView: ...
    @property
    def profile(self) -> ProfileView: ...
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
        """Return true if its supported parameters are known."""
        ...


class CardView(Protocol):
    """Words for people."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...


class ListedModel(Protocol):
    """An entry. ``latency`` is in seconds, ``throughput`` in tokens per second."""

    @property
    def id(self) -> str: ...
    @property
    def card(self) -> CardView: ...
    @property
    def endpoints(self) -> Sequence[ListedEndpoint]: ...
    @property
    def cheapest(self) -> ListedEndpoint: ...
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

    def with_endpoints(self) -> Mapping[str, Any]:
        """As ``GET /models/ID/endpoints`` shows it."""
        ...


class CatalogView(Protocol):
    """The catalog behind the router's door; ``prefix`` is the path of its base URL."""

    @property
    def prefix(self) -> str: ...
    def entries(self) -> Sequence[ListedModel]:
        """All of them."""
        ...

    def entry(self, name: str) -> ListedModel:
        """One; raises :class:`NotFound`."""
        ...

    def history(self, target: str) -> Sequence[TimeBucket]:
        """The last day of an endpoint, in quarters of an hour, the oldest first."""
        ...
