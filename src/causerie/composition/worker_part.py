"""The part of the settings that worker processes serve."""

from __future__ import annotations

from msgspec import structs

from causerie.settings import Settings

_SERVED = ("vllm",)  # engines that are servers, which any process reaches


def part_for_workers(settings: Settings) -> Settings:
    """Return the settings without models whose engine is the parent's, and what leads to them."""
    models = [one for one in settings.models if one.engine in _SERVED]
    ids = {one.id for one in models}
    return structs.replace(
        settings,
        models=tuple(models),
        aliases=tuple(
            one
            for one in settings.aliases
            if all(target.provider or target.model in ids for target in one.targets)
        ),
        catalog=tuple(
            one
            for one in settings.catalog
            if all(endpoint.provider or endpoint.model in ids for endpoint in one.endpoints)
        ),
    )
