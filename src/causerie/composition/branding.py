"""The look of the pages, from the settings."""

from __future__ import annotations

from collections.abc import Mapping

from causerie.console.branding import Branding
from causerie.console.logos import Logo
from causerie.settings.branding import BrandingSettings
from causerie.settings.logos import read_logo


def branding(settings: BrandingSettings) -> Branding:
    """Return name, colour and links of the pages."""
    return Branding(settings.name, settings.accent, settings.terms, settings.contact)


def logos(settings: BrandingSettings) -> Mapping[str, Logo]:
    """Return the logos by their names; raise :class:`ValueError` for one that cannot be read."""
    found = {name: read_logo(text) for name, text in settings.logos.items()}
    return {name: Logo(one.content_type, one.content) for name, one in found.items()}
