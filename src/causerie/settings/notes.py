"""Warnings about valid settings: who may spend money, and who pays for it."""

from __future__ import annotations

from collections.abc import Iterator

from causerie.protocol.variants import is_free
from causerie.settings.addresses import DoorAddress, door_addresses
from causerie.settings.branding import UNLIMITED
from causerie.settings.price import PriceSettings
from causerie.settings.tree import Settings

_NAMED = 5


def notes(settings: Settings) -> Iterator[str]:
    """Yield warnings about what strangers may do."""
    found = [each for each in door_addresses(settings) if each.door.keys == "accounts"]
    yield from _unlimited_free_models(settings, found)
    if _may_sign_up(settings, found):
        yield _newcomers_budget(settings.console.new_project_budget)
        yield from _without_price(settings, found)


def _may_sign_up(settings: Settings, found: list[DoorAddress]) -> bool:
    by_identity = any(each.sign_up for each in settings.identity_providers)
    return bool(found) and settings.console.enabled and (settings.console.sign_up or by_identity)


def _newcomers_budget(budget: str) -> str:
    if budget == UNLIMITED:
        return (
            "People may sign up, and their projects may spend without limit at your providers; "
            "`console.new_project_budget` limits it."
        )
    spend = f"spend ${budget} a month" if budget.strip("0.") else "use only what costs nothing"
    return (
        f"People may sign up; their projects may {spend} until you change their budgets "
        "(`console.new_project_budget`)."
    )


def _without_price(settings: Settings, found: list[DoorAddress]) -> Iterator[str]:
    shown = {id for each in found for id in each.models}
    names = [
        one.id
        for one in settings.aliases
        if one.id in shown
        and one.price == PriceSettings()
        and any(target.provider is not None for target in one.targets)
    ]
    names += [
        one.id
        for one in settings.catalog
        if one.id in shown
        and not is_free(one.id)
        and any(
            each.provider is not None and each.price == PriceSettings() for each in one.endpoints
        )
    ]
    if names:
        yield (
            f"No price is set for {_listed(names)} of providers, so no budget holds there; "
            "set `price`."
        )


def _unlimited_free_models(settings: Settings, found: list[DoorAddress]) -> Iterator[str]:
    """Yield a warning for own models of `:free` variants that another door has, too."""
    free = {
        endpoint.model
        for entry in settings.catalog
        if is_free(entry.id)
        for endpoint in entry.endpoints
        if endpoint.provider is None
    }
    for each in found:
        if each.door.kind != "router" and (both := sorted(free & {*each.models})):
            yield (
                f"The door {each.door.name} has {_listed(both)} too: the limits of `:free` "
                "variants do not count there; set the door's `models`."
            )


def _listed(names: list[str]) -> str:
    noun = "model" if len(names) == 1 else "models"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"the {noun} {', '.join(names[:_NAMED])}{more}"
