"""Conditions of accounts that somebody should know: budgets that are used, keys that expire."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

from causerie.accounts.authorization import Clock
from causerie.accounts.bounds import Unit
from causerie.accounts.money import exact
from causerie.accounts.people import Project
from causerie.accounts.watching import ExpiringKey, WatchedBudget, WatchedKey, Watching
from causerie.alerts.book import AlertBook
from causerie.alerts.condition import Condition
from causerie.alerts.message import AlertKind
from causerie.settings.alerts import Alerts

_DAY = timedelta(days=1)


class AccountConditions:
    """Over the accounts of one database, whose ``book`` all processes share."""

    def __init__(self, book: AlertBook, watching: Watching, clock: Clock) -> None:
        self.book = book
        self._watching = watching
        self._clock = clock

    async def look(self, alerts: Alerts) -> Sequence[Condition]:
        """Return what holds now; raise ``StoreUnavailable``."""
        now = self._clock()
        budgets = await self._watching.budgets() if alerts.budget_percent else ()
        days = max(alerts.key_expiry_days, default=0)
        expiring = await self._watching.expiring(now + days * _DAY) if days else ()
        found = [
            *(_budget(each, alerts.budget_percent, now) for each in budgets),
            *(_expiry(each, alerts.key_expiry_days, now) for each in expiring),
        ]
        return [each for each in found if each is not None]


def _budget(watched: WatchedBudget, percents: Sequence[int], now: datetime) -> Condition | None:
    """Return the highest share that is reached; a budget of nothing has none."""
    spending, budget = watched.spending, watched.spending.budget
    percent = int(spending.share * 100)
    reached = [each for each in percents if percent >= each]
    if budget.amount == 0 or not reached:
        return None
    owner, whose = _owner(watched)
    model = f" for model {budget.model}" if budget.model else ""
    since = budget.period.start(now)
    key = f"budget:{owner}:{budget.model}:{budget.unit}:{budget.period}:{since:%Y%m%d}"
    spent = exact(spending.spent) if budget.unit is Unit.MONEY else f"{int(spending.spent):,}"
    details = {
        "owner": owner,
        "model": budget.model,
        "budget": budget.words(),
        "spent": spent,
        "percent": str(percent),
        "threshold": str(max(reached)),
        "resets_at": spending.resets_at.isoformat() if spending.resets_at else "",
    }
    summary = f"{whose} has used {percent} % of its budget{model} ({budget.words()})"
    return Condition(
        *(key, AlertKind.BUDGET, summary, {name: each for name, each in details.items() if each}),
        level=max(reached),
        recovers=False,
    )


def _expiry(expiring: ExpiringKey, days: Sequence[int], now: datetime) -> Condition | None:
    """Return the condition of the shortest time before the end that is reached."""
    left = expiring.expires_at - now
    reached = [each for each in days if left <= each * _DAY]
    if not reached:
        return None
    key, at = expiring.key, expiring.expires_at
    rest = math.ceil(left / _DAY)
    when = f"{rest} days" if rest > 1 else "a day or less"
    summary = f'Key "{key.name}" ({key.id}) of project {expiring.project.name} expires in {when}'
    return Condition(
        f"key_expiry:{key.id}:{at:%Y%m%dT%H%M%S}",
        AlertKind.KEY_EXPIRY,
        summary,
        {"owner": f"key:{key.id}", "project": key.project_id, "expires_at": at.isoformat()},
        level=max(days) + 1 - min(reached),
        recovers=False,
        owner=expiring.email,
    )


def _owner(watched: WatchedBudget) -> tuple[str, str]:
    """Return the owner for programs and for people."""
    match watched.owner:
        case WatchedKey(project, key):
            return f"key:{key.id}", f'Key "{key.name}" ({key.id}) of project {project.name}'
        case Project() as project:
            return f"project:{project.id}", f"Project {project.name}"
        case person:
            return f"user:{person.id}", f"{person.name} ({person.id})"
