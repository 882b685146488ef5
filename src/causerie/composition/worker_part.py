"""The part of the settings that worker processes serve."""

from __future__ import annotations

from msgspec import structs

from causerie.settings import Settings
from causerie.settings.addresses import door_addresses


def part_for_workers(settings: Settings) -> Settings:
    """Return the settings without own models and what leads to them."""
    doors = tuple(address.door for address in door_addresses(settings) if not address.own)
    return structs.replace(
        settings,
        models=(),
        aliases=tuple(
            one for one in settings.aliases if all(target.provider for target in one.targets)
        ),
        catalog=tuple(
            one for one in settings.catalog if all(endpoint.provider for endpoint in one.endpoints)
        ),
        doors=doors,
    )
