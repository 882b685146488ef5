"""Pages for operators: health of providers and targets; revenue, provider costs and margin."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from statistics import median

from msgspec import Struct

from causerie.catalog.model import Tariff
from causerie.hosted.accounts.bounds import BudgetPeriod
from causerie.hosted.accounts.people import Action
from causerie.hosted.accounts.usage import (
    OWN_PROVIDER,
    By,
    ChargedQuery,
    ChargedSum,
    Step,
    UsageQuery,
    UsageSum,
    provider_of,
)
from causerie.hosted.console.charts import Strip, strips
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.console.service_view import ServiceView, StatusBadge, service_badges, troubled
from causerie.hosted.console.usage import usage_since
from causerie.protocol.events import Usage
from causerie.protocol.money import amount_of
from causerie.protocol.targets import TimeBucket

_PROBLEMS = 8
_HERE = "this service"
_TONES = ("bad", "warn", "good", "")  # the worst first


class ProviderHealth(Struct, frozen=True):
    """A provider's state, its availability over a day, and its median time to the first token.

    ``cost`` and ``share`` of all requests are those of today; ``None`` where they may not be seen.
    """

    name: str
    targets: int
    badge: StatusBadge
    day: Strip
    latency: float | None
    cost: Decimal | None = None
    share: float | None = None

    @property
    def failing(self) -> float | None:
        """Return the percent of the requests of a day that failed."""
        return None if self.day.uptime is None else 100 - 100 * self.day.uptime


def _get_provider_of_target(target: str, own_targets: frozenset[str]) -> str:
    return OWN_PROVIDER if target in own_targets else provider_of(target)


async def provider_health(
    context: RequestContext, badges: Mapping[str, Sequence[StatusBadge]]
) -> Sequence[ProviderHealth]:
    """Return each provider's health; ``badges`` maps providers to the badges of their targets."""
    used, now, rows = await _read_usage_by_provider_today(context), context.services.clock(), []
    asked = sum(each.requests for each in used.values()) if used is not None else 0
    for name, found in badges.items():
        buckets = _merge_history(context.service_view, (each.target for each in found))
        [day] = strips({_HERE if name == OWN_PROVIDER else name: buckets}, now)
        latency = _compute_median_of_known(one.first_token for one in buckets)
        cost = share = None
        if used is not None:
            of = used.get(name)
            cost, share = (of.cost, of.requests / asked) if of else (Decimal(0), 0.0)
        badge = _build_worst_badge(name, found)
        rows.append(ProviderHealth(name, len(found), badge, day, latency, cost, share))
    return rows


async def show(context: RequestContext) -> None:
    await context.check_right(Action.SERVICE_SEE)
    view, named = context.service_view, context.query.get("provider")
    badges = service_badges(view)
    own = frozenset(each.model for each in view.status())
    ailing = troubled(badges)
    grouped: dict[str, list[StatusBadge]] = {}
    for each in badges:
        grouped.setdefault(_get_provider_of_target(each.target, own), []).append(each)
    rows = sorted(
        await provider_health(context, grouped),
        key=lambda row: (_TONES.index(row.badge.tone), -(row.failing or 0), row.name),
    )
    targets = [each for each in view.targets() if _get_provider_of_target(each.name, own) == named]
    await context.send_page(
        "operator/health.html",
        rows=rows,
        named=named if named in grouped else "",
        problems=ailing[:_PROBLEMS],
        troubled=len(ailing),
        provider_of={each.target: _get_provider_of_target(each.target, own) for each in ailing},
        engines=view.status(),
        targets=sorted(targets, key=lambda each: (each.state == "up", -each.failures, each.name)),
        worker=view.worker(),
    )


async def _read_usage_by_provider_today(context: RequestContext) -> Mapping[str, UsageSum] | None:
    if not await context.may(Action.USAGE_SEE_ALL):
        return None
    today = BudgetPeriod.DAY.start(context.services.clock())
    question = UsageQuery(today, today + timedelta(days=1), Step.ALL, by=(By.PROVIDER,))
    sums = await context.accounts.usage.sums(context.actor, None, question)
    return {name: each for each in sums if (name := each.group[By.PROVIDER])}


def _build_worst_badge(name: str, badges: Sequence[StatusBadge]) -> StatusBadge:
    """Return a provider's badge: the worst state of its targets, and how many are not ready."""
    ailing = troubled(badges)
    if not badges:
        return StatusBadge(name, "not used")
    if not ailing:
        return StatusBadge(name, badges[0].word if len(badges) == 1 else "ready", badges[0].tone)
    return StatusBadge(name, ailing[0].word, ailing[0].tone, f"{len(ailing)} of {len(badges)}")


def _merge_history(service_view: ServiceView, targets: Iterable[str]) -> Sequence[TimeBucket]:
    """Return the merged history of targets: sums of counts, medians of times to the first token."""
    quarters: dict[int, list[TimeBucket]] = {}
    for target in targets:
        if service_view.requests(target):
            for bucket in service_view.history(target):
                quarters.setdefault(bucket.start, []).append(bucket)
    return [
        TimeBucket(
            start,
            sum(one.answered for one in every),
            sum(one.failed for one in every),
            _compute_median_of_known(one.first_token for one in every),
            None,
        )
        for start, every in sorted(quarters.items())
    ]


def _compute_median_of_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


_DAYS = 30
_MOST_TROUBLED = 12


class Business(Struct, frozen=True):
    """Use, revenue and cost of a period; ``unknown`` is the revenue whose cost is not known."""

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
        """Return the margin in percent of the revenue whose cost is known; ``None`` without any."""
        known = self.revenue - self.unknown
        return self.margin / known * 100 if known else None


async def show_business(context: RequestContext) -> None:
    """Show revenue and costs of today and of 30 days, and the targets that are in trouble."""
    await context.check_right(Action.USAGE_SEE_ALL)
    today = BudgetPeriod.DAY.start(context.services.clock())
    sees = await context.may(Action.USERS_SEE)
    people = await context.accounts.users.every(context.actor) if sees else ()
    periods = []
    for title, since in (("Today", today), (f"{_DAYS} days", today - timedelta(days=_DAYS - 1))):
        new = sum(each.created_at >= since for each in people)
        periods.append((title, await _compute_business(context, since, new)))
    ailing = troubled(service_badges(context.service_view))[:_MOST_TROUBLED]
    await context.send_page("operator/business.html", periods=periods, people=sees, troubled=ailing)


async def _compute_business(context: RequestContext, since: datetime, new_users: int) -> Business:
    usage, tariffs = context.accounts.usage, context.service_view.provider_costs()
    until = BudgetPeriod.DAY.start(context.services.clock()) + timedelta(days=1)
    sums = Counter[str]()
    async for piece in usage.charged(context.actor, ChargedQuery(since, until)):
        for each in piece:
            cost = _compute_cost_billionths_from_tariff(each, tariffs)
            sums["cost"] += cost or 0
            sums["revenue"] += int(each.cost.scaleb(9))
            sums["unknown"] += 0 if cost is not None else int(each.cost.scaleb(9))
    amounts = {name: amount_of(sums[name]) for name in ("revenue", "cost", "unknown")}
    return Business(await usage_since(context, None, since), new_users, **amounts)


def _compute_cost_billionths_from_tariff(
    charged_sum: ChargedSum, provider_tariffs: Mapping[tuple[str, str], Tariff]
) -> int | None:
    # Tiers are left out: which requests were long is not in the sums.
    tariff = provider_tariffs.get((charged_sum.model, charged_sum.served_by))
    if tariff is None:
        return None
    names = ("prompt", "completion", "cached", "reasoning", "written")
    tokens = {name: getattr(charged_sum, name) for name in names}
    units = charged_sum.units or charged_sum.requests
    return dataclasses.replace(tariff, tiers=()).charge(Usage(**tokens, units=units))
