"""The service as a business, for its operators: use, revenue, what providers charge, the margin."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal

from msgspec import Struct

from causerie.catalog.model import Tariff
from causerie.hosted.accounts.bounds import BudgetPeriod
from causerie.hosted.accounts.people import Action
from causerie.hosted.accounts.usage import ChargedQuery, ChargedSum, Step, UsageQuery, UsageSum
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.console.service_view import service_badges, troubled
from causerie.hosted.console.usage import total_usage
from causerie.protocol.events import Usage
from causerie.protocol.money import amount_of

_DAYS = 30
_MOST_TROUBLED = 12


class Business(Struct, frozen=True):
    """One period. ``unknown`` is revenue from targets whose provider's price is not known."""

    used: UsageSum
    accounts: int
    revenue: Decimal = Decimal(0)
    cost: Decimal = Decimal(0)
    unknown: Decimal = Decimal(0)

    @property
    def margin(self) -> Decimal:
        return self.revenue - self.unknown - self.cost

    @property
    def percent(self) -> Decimal | None:
        """Return the margin as a share of the revenue that has a known cost."""
        known = self.revenue - self.unknown
        return self.margin / known * 100 if known else None


async def show(context: RequestContext) -> None:
    """Show today and 30 days, and the targets that are in trouble."""
    await context.check_right(Action.USAGE_SEE_ALL)
    today = BudgetPeriod.DAY.start(context.services.clock())
    sees = await context.may(Action.USERS_SEE)
    people = await context.accounts.users.every(context.actor) if sees else ()
    periods = []
    for title, since in (("Today", today), (f"{_DAYS} days", today - timedelta(days=_DAYS - 1))):
        new = sum(each.created_at >= since for each in people)
        periods.append((title, await _business(context, since, today + timedelta(days=1), new)))
    await context.show(
        "operator/business.html",
        periods=periods,
        people=sees,
        troubled=troubled(service_badges(context.service_view))[:_MOST_TROUBLED],
    )


async def _business(
    context: RequestContext, since: datetime, until: datetime, accounts: int
) -> Business:
    usage, tariffs = context.accounts.usage, context.service_view.provider_costs()
    used = total_usage(await usage.sums(context.actor, None, UsageQuery(since, until, Step.ALL)))
    sums = Counter[str]()
    async for piece in usage.charged(context.actor, ChargedQuery(since, until)):
        for each in piece:
            cost = _cost(each, tariffs)
            sums["cost"] += cost or 0
            sums["revenue"] += int(each.cost.scaleb(9))
            sums["unknown"] += 0 if cost is not None else int(each.cost.scaleb(9))
    amounts = {name: amount_of(sums[name]) for name in ("revenue", "cost", "unknown")}
    return Business(used, accounts, **amounts)


def _cost(charged: ChargedSum, tariffs: Mapping[tuple[str, str], Tariff]) -> int | None:
    # Tiers are left out: which requests were long is not in the sums.
    tariff = tariffs.get((charged.model, charged.served_by))
    if tariff is None:
        return None
    names = ("prompt", "completion", "cached", "reasoning", "written")
    tokens = {name: getattr(charged, name) for name in names}
    units = charged.units or charged.requests
    return dataclasses.replace(tariff, tiers=()).charge(Usage(**tokens, units=units))
