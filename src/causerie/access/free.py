"""Limits of free variants: so much for each account, whichever of its keys asks."""

from __future__ import annotations

from causerie.access.keys import Caller
from causerie.access.quota import Rates, Scope
from causerie.protocol.variants import free_name

_KEPT = 10_000


class FreeScopes:
    """One scope an account, all with the same rates."""

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self._made: dict[str, Scope] = {}

    def of(self, caller: Caller) -> Scope:
        """The scope of the caller's project; of its key, or of all at a door without keys."""
        account = caller.project or caller.key or caller.name
        scope = self._made.get(account)
        if scope is None:
            if len(self._made) >= _KEPT:
                del self._made[next(iter(self._made))]
            scope = self._made[account] = Scope(
                "project", f"{free_name(account)} models", self._rates
            )
        return scope
