"""The look of the pages, from the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from causerie.settings.branding import BrandingSettings
from causerie.settings.logos import read_logo

if TYPE_CHECKING:
    from causerie.console.branding import Branding
    from causerie.console.logos import Logo


def branding(settings: BrandingSettings) -> Branding:
    """Return name, colour and links of the pages."""
    from causerie.console.branding import Branding  # noqa: PLC0415 - memory, for visitors only

    return Branding(settings.name, settings.accent, settings.terms, settings.contact)


def logos(settings: BrandingSettings) -> Mapping[str, Logo]:
    """Return the logos by their names; raise :class:`ValueError` for one that cannot be read."""
    from causerie.console.logos import Logo  # noqa: PLC0415 - memory, for visitors only

    found = {name: read_logo(text) for name, text in settings.logos.items()}
    return {name: Logo(one.content_type, one.content) for name, one in found.items()}
