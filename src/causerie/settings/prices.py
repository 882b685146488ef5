"""Prices in force: those of the settings, and list prices where they have none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from causerie.protocol.model_entries import is_free
from causerie.providers.price_list import (
    LARGEST,
    ListedPrice,
    PriceList,
    WrongList,
    parsed_list,
    provider_at,
    shipped_list,
)
from causerie.settings.catalog import AliasSettings, AliasTarget
from causerie.settings.problems import Broken
from causerie.settings.tree import Settings
from causerie.settings.values import PriceSettings, PriceTier

_NOTHING = PriceSettings()


class TargetPrice(Struct, frozen=True):
    """Price of requests that a target answers, and the rows of the price list that it is from."""

    price: PriceSettings
    rows: Sequence[ListedPrice] = ()


class Prices:
    """Prices of the targets of aliases."""

    def __init__(self, settings: Settings) -> None:
        self.list = price_list(settings) if settings.list_prices.enabled else PriceList(())
        self._price_by_own_model = {model.id: model.price for model in settings.models}
        self._list_name_by_provider = {
            each.name: provider_at(each.base_url) if each.price_list is None else each.price_list
            for each in settings.providers
        }

    def of(self, alias: AliasSettings, target: AliasTarget, model: str = "") -> TargetPrice | None:
        """Return a target's price, at a wildcard that of ``model``; ``None`` if there is none."""
        set_here = alias.price if target.price is None else target.price
        if set_here is not None:
            return TargetPrice(set_here)
        if target.provider is None:
            return TargetPrice(self._price_by_own_model.get(target.model, _NOTHING))
        rows = self.list.of(
            self._list_name_by_provider.get(target.provider, ""), model or target.model
        )
        if not rows:
            return None
        base, *above = rows
        tiers = tuple(PriceTier(above=each.above, **each.prices) for each in above)
        return TargetPrice(PriceSettings(**base.prices, tiers=tiers), rows)

    def unpriced(self, alias: AliasSettings) -> bool:
        """Return true if a target of ``alias`` has no price and, as a wildcard, no price list."""
        listed = {provider for provider, _ in self.list.models}
        return any(
            "*" not in each.model
            or self._list_name_by_provider.get(each.provider or "") not in listed
            for each in alias.targets
            if self.of(alias, each) is None
        )


def price_list_file(settings: Settings) -> Path:
    """Return the path of the file that updates the shipped price list; it need not exist."""
    return Path(settings.list_prices.file or Path(settings.store.folder or "") / "prices.csv")


def price_list(settings: Settings) -> PriceList:
    """Return the shipped price list, updated by the file if it exists; raise :class:`WrongList`."""
    file = price_list_file(settings)
    try:
        with file.open(encoding="utf-8-sig") as opened:
            text = opened.read(LARGEST + 1)  # what is longer is refused
    except (FileNotFoundError, NotADirectoryError):
        if settings.list_prices.file is None:
            return shipped_list()
        raise WrongList(f'there is no file "{file}"') from None
    except (OSError, UnicodeError) as failure:
        raise WrongList(f'"{file}" cannot be read as text') from failure
    try:
        return _build_updated_price_list(text)
    except WrongList as failure:
        raise WrongList(f'"{file}": {failure}') from failure


@lru_cache(maxsize=2)
def _build_updated_price_list(update_text: str) -> PriceList:
    # Settings are loaded again for each entry that is tried.
    return shipped_list().updated(parsed_list(update_text))


def price_rules(settings: Settings) -> Iterator[Broken]:
    """Yield a problem if the price list cannot be used."""
    if settings.list_prices.enabled:
        try:
            price_list(settings)
        except WrongList as failure:
            yield Broken(("list_prices", "file"), str(failure))


def without_price(settings: Settings) -> Sequence[str]:
    """Return ids of aliases and catalog models that cost nothing because nobody set a price."""
    prices = Prices(settings)
    names = [alias.id for alias in settings.aliases if prices.unpriced(alias)]
    for entry in settings.catalog:
        unset = [one.provider is not None and one.price == _NOTHING for one in entry.endpoints]
        if not is_free(entry.id) and any(unset):
            names.append(entry.id)
    return names
