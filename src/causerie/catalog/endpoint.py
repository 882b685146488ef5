"""One endpoint of a model in the router's catalog, and why a request passes it by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date

from causerie.catalog.exclusion import TargetExclusion
from causerie.catalog.model import ModelProfile, TargetCapabilities, known
from causerie.catalog.tariff import Tariff
from causerie.protocol.candidate import Candidate
from causerie.protocol.preferences import UNBOUNDED, MostPrice, Preferences

BASIC = frozenset(
    {"model", "messages", "stream", "stream_options", "session_id", "include_reasoning"}
)
"""What needs nothing of an endpoint."""


@dataclass(frozen=True, slots=True)
class CatalogEndpoint:
    """``provider`` is the provider's name. ``probed`` says when its parameters were measured.

    ``private``: it is said to keep nothing of what it is sent.
    """

    capabilities: TargetCapabilities
    provider: str
    tariff: Tariff = field(default_factory=Tariff)
    quantization: str | None = None
    private: bool = False
    probed: date | None = None

    @property
    def name(self) -> str:
        return self.capabilities.candidate.name

    def candidate(self, priority: int = 0, weight: float = 1.0) -> Candidate:
        """It, at this place among the others."""
        return Candidate(self.name, priority, weight, self.capabilities.candidate.bounds)

    @property
    def profile(self) -> ModelProfile:
        return self.capabilities.profile()

    @property
    def parameters(self) -> frozenset[str]:
        """Return the parameters that it supports; all of them if nothing is known."""
        return known(self.capabilities) - self.profile.lacks

    @property
    def measured(self) -> bool:
        """Return true if its supported parameters are known."""
        return self.capabilities.parameters is not None

    def is_one_of(self, names: frozenset[str]) -> bool:
        """Return true if a preference names it: the endpoint, or this model there."""
        return self.provider in names or self.name in names

    def supports(self, wanted: frozenset[str], *, strict: bool) -> bool:
        """Return true if it supports all these parameters, or with ``strict`` is known to."""
        supported = self.capabilities.parameters
        if supported is None:
            return not strict or wanted <= BASIC
        return wanted <= supported

    def lacking(self, wanted: frozenset[str], *, strict: bool) -> list[str]:
        """The parameters that it does not support, or with ``strict`` is not known to."""
        supported = self.capabilities.parameters
        if supported is None:
            supported = BASIC if strict else self.parameters
        return sorted(wanted - supported)

    @property
    def falls_short(self) -> str:
        """Return the text of an error before the names of parameters that it is :meth:`lacking`."""
        return "does not support" if self.measured else "is not known to support"

    def disliked(self, preferences: Preferences) -> Iterator[tuple[str, str]]:
        """The preferences that leave it out: the field, and why, in words."""
        if preferences.only is not None and not self.is_one_of(preferences.only):
            yield "only", "is not in `provider.only`"
        if self.is_one_of(preferences.ignore):
            yield "ignore", "is in `provider.ignore`"
        wanted = preferences.quantizations
        if wanted is not None and (self.quantization or "unknown") not in wanted:
            yield "quantizations", f"has the quantization {self.quantization or 'unknown'}"
        if preferences.private and not self.private:
            yield "data_collection", "may keep what it is sent"
        if preferences.max_price is not UNBOUNDED:
            for name in self._dear(preferences.max_price):
                price = self.tariff.by_million[name]
                yield f"max_price.{name}", f"costs {price.normalize():f} ({name})"
        order = preferences.order
        if order and not preferences.allow_fallbacks and not self.is_one_of(frozenset(order)):
            yield "order", "is not in `provider.order`, and `allow_fallbacks` is false"

    def exclusions(
        self, wanted: frozenset[str], preferences: Preferences
    ) -> Iterator[TargetExclusion]:
        """Everything that leaves it out of a request; nothing where it can take it."""
        for name in self.lacking(wanted, strict=preferences.require_parameters):
            yield TargetExclusion(name, f"{self.falls_short} `{name}`")
        for name, why in self.disliked(preferences):
            yield TargetExclusion(f"provider.{name}", why)

    def _dear(self, most: MostPrice) -> Iterator[str]:
        for name, price in self.tariff.by_million.items():
            bound = getattr(most, name)
            if bound is not None and price > bound:
                yield name
