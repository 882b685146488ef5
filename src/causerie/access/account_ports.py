"""Those who come with keys of accounts, as the pipeline sees them.

Protocols only: what a pipeline with accounts is handed. Knows nothing of how
accounts are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from causerie.access.credential import Credential
from causerie.access.keys import Caller, Named
from causerie.access.quota import RateScope, Tokens


class KeyAuthenticator(Protocol):
    """The keys of accounts."""

    async def authenticate(self, door: Named, credential: Credential | None) -> Caller:
        """Authenticate the caller; raise ``Unauthenticated``, ``Forbidden`` or
        ``StoreUnavailable``.
        """


class Allowances(Protocol):
    """Limits and budgets of callers that have accounts."""

    def scopes(self, caller: Caller, model: str) -> Sequence[RateScope]:
        """Return the scopes whose limits apply, in addition to those of door and model."""

    async def reserve(self, caller: Caller, model: str, need: Callable[[], Tokens]) -> object:
        """Hold the estimate against budgets until the record is entered; raises ``OverBudget``."""

    def release(self, held: object) -> None:
        """Give back what is held for a request that asks for another model instead."""


class FreeReservation(AbstractContextManager[object], Protocol):
    """One free request of a day; leaving the block with a failure gives it back if not charged."""

    charged: bool

    @property
    def day_status(self) -> DayStatus: ...


class DayStatus(Protocol):
    """State of a project's daily allowance."""

    @property
    def headers(self) -> Mapping[str, str]: ...


class FreeAllowance(Protocol):
    """Daily allowance of requests to free models, by project."""

    async def take(self, project: str) -> FreeReservation:
        """One more; raises ``RateLimited``, ``StoreUnavailable``."""


@dataclass(frozen=True, slots=True)
class AccountPorts:
    """Those who come with keys of accounts."""

    keys: KeyAuthenticator
    allowances: Allowances
    free_days: FreeAllowance | None
    """``None`` where another process answers for free models."""
