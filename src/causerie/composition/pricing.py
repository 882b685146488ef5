"""Tariffs of everything that can be asked, from the settings and the price list."""

from __future__ import annotations

from decimal import Decimal

from causerie.catalog.catalog import WILDCARD
from causerie.catalog.model import TargetTariffs, Tariff
from causerie.protocol.numbers import money
from causerie.settings.catalog import AliasSettings
from causerie.settings.prices import Prices, TargetPrice
from causerie.settings.tree import Settings
from causerie.settings.values import PriceSettings, TokenPrices

_MILLION = 1_000_000


def tariff(price: PriceSettings) -> Tariff:
    tiers = sorted((each.above, _tariff(each, price)) for each in price.tiers)
    return _tariff(price, price, tuple(tiers))


def _tariff(
    tokens: TokenPrices, price: PriceSettings, tiers: tuple[tuple[int, Tariff], ...] = ()
) -> Tariff:
    return Tariff(
        prompt=money(tokens.prompt) / _MILLION,
        completion=money(tokens.completion) / _MILLION,
        cached=_one(tokens.cached),
        written=_one(tokens.cache_write),
        reasoning=_one(tokens.reasoning),
        request=money(price.request),
        tiers=tiers,
    )


def _one(million: str | None) -> Decimal | None:
    return None if million is None else money(million) / _MILLION


class ModelPricing:
    """Tariffs of aliases."""

    def __init__(self, settings: Settings) -> None:
        self._prices = Prices(settings)
        self._listed: dict[tuple[str, str], Tariff] = {}  # by rows of the list

    def of(self, alias: AliasSettings, rest: str = "") -> TargetTariffs:
        """Return an alias's tariffs by target; ``rest`` replaces the wildcard in model names."""
        found: dict[str, Tariff] = {}
        listed = False
        for target in alias.targets:
            price = self._prices.of(alias, target, target.model.replace(WILDCARD, rest, 1))
            listed = listed or (price is not None and bool(price.rows))
            name = target.name.replace(WILDCARD, rest, 1)
            found[name] = Tariff() if price is None else self._tariff(price)
        return TargetTariffs(by_target=found, listed=listed)

    def _tariff(self, found: TargetPrice) -> Tariff:
        if not found.rows:
            return tariff(found.price)
        row = found.rows[0]
        name = row.provider, row.model
        if name not in self._listed:
            self._listed[name] = tariff(found.price)
        return self._listed[name]
