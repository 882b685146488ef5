"""Rules of the chat page at `/`: when browsers get it, and the doors that it offers."""

from __future__ import annotations

from causerie.settings.addresses import DoorAddress, default_address, door_addresses, has_accounts
from causerie.settings.door_rules import is_loopback
from causerie.settings.tree import Settings


def has_chat_page(settings: Settings) -> bool:
    """Return true if the settings want it; with accounts there is the console instead."""
    server = settings.server
    if has_accounts(settings):
        return False
    if server.chat_page is not None:
        return server.chat_page
    return is_loopback(server.host) or any(map(_open, door_addresses(settings)))


def chat_base_urls(settings: Settings) -> tuple[str, ...]:
    """Return the paths that the page offers: the usual door's, then those that need no key."""
    usual = default_address(settings)
    others = (each for each in door_addresses(settings) if each != usual and _open(each))
    return ("/v1", *(each.prefix for each in others))


def _open(address: DoorAddress) -> bool:
    return address.door.keys in (None, "off")
