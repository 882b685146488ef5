"""The page of health: what is not well, then each provider in a row, and its targets on demand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from statistics import median

from msgspec import Struct

from causerie.hosted.accounts.people import Action
from causerie.hosted.accounts.usage import By, Step, UsageQuery
from causerie.hosted.console.charts import Strip, strips
from causerie.hosted.console.overview import midnight
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.console.service_view import ServiceView, StatusBadge, service_badges, troubled
from causerie.protocol.targets import TimeBucket
from causerie.routing.target_state import TargetStatus

_PROBLEMS = 8
_HERE = "this service"
_TONES = ("bad", "warn", "good", "")  # the worst first


class ProviderHealth(Struct, frozen=True):
    """A provider's day; ``latency`` is the median of its quarters, in seconds."""

    name: str
    targets: int
    badge: StatusBadge
    day: Strip
    latency: float | None
    cost: Decimal | None = None
    """``None`` where costs may not be seen."""

    @property
    def failing(self) -> float | None:
        """Return the percent of the requests of a day that failed."""
        return None if self.day.uptime is None else 100 - 100 * self.day.uptime


def provider_of(target: str, own: frozenset[str]) -> str:
    return _HERE if target in own or "/" not in target else target.partition("/")[0]


async def show(context: RequestContext) -> None:
    await context.check_right(Action.SERVICE_SEE)
    view, named = context.service_view, context.query.get("provider")
    badges = service_badges(view)
    own = frozenset(each.model for each in view.status())
    ailing = troubled(badges)
    grouped: dict[str, list[StatusBadge]] = {}
    for each in badges:
        grouped.setdefault(provider_of(each.target, own), []).append(each)
    costs = await _costs(context)
    now = context.services.clock()
    rows = []
    for name, found in grouped.items():
        buckets = _merged(view, (each.target for each in found))
        [day] = strips({name: buckets}, now)
        spent = costs.get(name, Decimal(0)) if costs is not None else None
        rows.append(
            ProviderHealth(name, len(found), _summed(name, found), day, _latency(buckets), spent)
        )
    rows.sort(key=lambda row: (_TONES.index(row.badge.tone), -(row.failing or 0), row.name))
    await context.show(
        "operator/health.html",
        rows=rows,
        named=named if named in grouped else "",
        problems=ailing[:_PROBLEMS],
        troubled=len(ailing),
        provider_of={each.target: provider_of(each.target, own) for each in ailing},
        engines=view.status(),
        targets=_targets(view, named, own),
        worker=view.worker(),
    )


def _targets(view: ServiceView, named: str, own: frozenset[str]) -> Sequence[TargetStatus]:
    """Return the targets of the provider that is open, the worst first."""
    found = [each for each in view.targets() if provider_of(each.name, own) == named]
    return sorted(found, key=lambda each: (each.state == "up", -each.failures, each.name))


async def _costs(context: RequestContext) -> Mapping[str, Decimal] | None:
    if not await context.may(Action.USAGE_SEE_ALL):
        return None
    today = midnight(context.services.clock())
    question = UsageQuery(today, today + timedelta(days=1), Step.ALL, by=(By.PROVIDER,))
    sums = await context.accounts.usage.sums(context.actor, None, question)
    return {each.group[By.PROVIDER]: each.cost for each in sums}


def _summed(name: str, found: Sequence[StatusBadge]) -> StatusBadge:
    """Return the worst state of a provider's targets, and how many of them are not well."""
    ailing = troubled(found)
    if not ailing:
        return StatusBadge(name, found[0].word if len(found) == 1 else "ready", found[0].tone)
    return StatusBadge(name, ailing[0].word, ailing[0].tone, f"{len(ailing)} of {len(found)}")


def _merged(view: ServiceView, targets: Iterable[str]) -> Sequence[TimeBucket]:
    """Return the day of several targets as of one; its times are medians of their medians."""
    quarters: dict[int, list[TimeBucket]] = {}
    for target in targets:
        if view.requests(target):
            for bucket in view.history(target):
                quarters.setdefault(bucket.start, []).append(bucket)
    return [
        TimeBucket(
            start,
            sum(one.answered for one in every),
            sum(one.failed for one in every),
            _median(one.first_token for one in every),
            None,
        )
        for start, every in sorted(quarters.items())
    ]


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _latency(buckets: Sequence[TimeBucket]) -> float | None:
    return _median(one.first_token for one in buckets)
