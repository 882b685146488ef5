"""Limits and budgets of one key for one model: the key's own, its person's and its project's.

They are computed once for a key and a model, and again when either has changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

from msgspec import Struct

from causerie.access.quota import Rates, RateScope, ScopeKind
from causerie.accounts.bounds import UNBOUNDED, Limit, LimitsAndBudgets
from causerie.accounts.budgets import Claim
from causerie.accounts.keys import Grant
from causerie.protocol.variants import free_name, is_free

_KEPT = 10_000
_RATES = tuple(each.name for each in fields(Limit) if each.name != "model")


class Entitlement(Struct, frozen=True):
    """The scopes whose limits hold, and the owners whose budgets do."""

    scopes: tuple[RateScope, ...]
    claims: tuple[Claim, ...]


class Entitlements:
    """Those that were asked for lately."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], tuple[Grant, Entitlement]] = {}

    def of(self, grant: Grant, model: str) -> Entitlement:
        """Return the limits and budgets of this grant for the model with this id."""
        place = (grant.key.id, model)
        known = self._made.get(place)
        if known is not None and known[0] is grant:
            return known[1]
        made = _entitlement(grant, model)
        if len(self._made) >= _KEPT:
            del self._made[next(iter(self._made))]
        self._made[place] = (grant, made)
        return made


def _entitlement(grant: Grant, model: str) -> Entitlement:
    key, person, project = grant.key.id, grant.key.person, grant.key.project_id
    bounds: Sequence[tuple[ScopeKind, str, LimitsAndBudgets]] = (
        ("key", key, grant.key.bounds),
        ("user", person, grant.person_bounds if person else UNBOUNDED),
        ("project", project, grant.project_bounds),
    )
    return Entitlement(
        scopes=tuple(
            RateScope(kind, _scope(name, limit, model), _rates(limit))
            for kind, name, each in bounds
            for limit in _applying(each, model)
        ),
        claims=tuple(
            Claim(f"{kind}:{name}", each.budgets) for kind, name, each in bounds if each.budgets
        ),
    )


def _scope(name: str, limit: Limit, model: str) -> str:
    """Return the name of the counts; free variants of models have counts of their own."""
    if limit.model:
        return f"{name} for {model}"
    return free_name(name) if is_free(model) else name


def _applying(bounds: LimitsAndBudgets, model: str) -> Iterator[Limit]:
    for limit in bounds.limits:
        if limit.model in ("", model):
            yield limit


def _rates(limit: Limit) -> Rates:
    return Rates(**{name: getattr(limit, name) for name in _RATES})
