"""Limits of free variants: so much for each account, whichever of its keys asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from causerie.access.keys import Caller
from causerie.access.quota import Rates, RateScope
from causerie.errors import RateLimited
from causerie.protocol.candidate import Candidate
from causerie.protocol.variants import free_name

_KEPT = 10_000
_BUSY_SECONDS = 2


class FreeScopes:
    """One scope an account, all with the same rates.

    ``busy`` says whether a target has nobody to spare: free requests do not
    wait there, where they would be in the way of paid ones.
    """

    def __init__(self, rates: Rates, busy: Callable[[str], bool]) -> None:
        self._rates = rates
        self._busy = busy
        self._made: dict[str, RateScope] = {}

    def of(self, caller: Caller) -> RateScope:
        """The scope of the caller's project; of its key, or of all at a door without keys."""
        account = caller.project or caller.key or caller.name
        scope = self._made.get(account)
        if scope is None:
            if len(self._made) >= _KEPT:
                del self._made[next(iter(self._made))]
            scope = self._made[account] = RateScope(
                "project", f"{free_name(account)} models", self._rates
            )
        return scope

    def spare(self, model: str, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Those that have room; raises :class:`RateLimited` where none has."""
        found = [one for one in candidates if not self._busy(one.name)]
        if not found:
            raise RateLimited(
                f"There is no room for free requests of {model} now. Try again in "
                f"{_BUSY_SECONDS} s, or ask for the model without `:free`.",
                code="concurrency",
                headers={"Retry-After": str(_BUSY_SECONDS)},
            )
        return found
