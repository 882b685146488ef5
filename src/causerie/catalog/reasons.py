"""Why an endpoint has its place among those that can take a request, in words for people.

Says what :mod:`~causerie.catalog.choice` has decided by, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

from causerie.catalog.choice import StatsReader
from causerie.catalog.endpoint import CatalogEndpoint
from causerie.protocol.preferences import Preferences, SortBy
from causerie.protocol.target_stats import UNKNOWN, TargetStats


def reasons(
    one: CatalogEndpoint,
    able: Sequence[CatalogEndpoint],
    preferences: Preferences,
    sort: SortBy | None,
    stats_of: StatsReader,
) -> Iterator[str]:
    """Yield the reasons for priority and weight of ``one`` of ``able``; ``sort`` is the model's
    own.
    """
    if preferences.order:
        place = _place(one, preferences.order)
        if place is not None:
            yield f"is number {place} of `provider.order`"
            return
        yield "is not in `provider.order`, so it comes after those that are"
    by = preferences.sort or sort
    if by == "price":
        yield f"{_price(one)}; cheapest first"
    elif by is not None:
        yield _measured(stats_of(one.name) or UNKNOWN, by)
    elif not one.tariff.usual:
        yield "is free; free endpoints come before all others"
    else:
        yield _share(one, able)
    if not preferences.order and not preferences.allow_fallbacks:
        yield "is the only one tried, because `allow_fallbacks` is false"


def _place(one: CatalogEndpoint, order: Sequence[str]) -> int | None:
    for number, name in enumerate(order, start=1):
        if one.is_one_of(frozenset((name,))):
            return number
    return None


def _price(one: CatalogEndpoint) -> str:
    if not one.tariff.usual:
        return "is free"
    return f"costs {_short(one.tariff.usual)} per 1M tokens (75 % input, 25 % output)"


def _share(one: CatalogEndpoint, able: Sequence[CatalogEndpoint]) -> str:
    least = min(each.tariff.usual for each in able if each.tariff.usual)
    if one.tariff.usual == least:
        return f"{_price(one)}, the cheapest one that is not free"
    times = _short(one.tariff.usual / least)
    return f"{_price(one)}, {times} times the cheapest; its share falls with the square of that"


def _measured(target_stats: TargetStats, by: SortBy) -> str:
    measured = target_stats.speed if by == "throughput" else target_stats.first_token
    if measured is not None:
        if by == "throughput":
            return f"writes {measured.p50:.0f} tokens per second; fastest first"
        usual, now = measured.p50, target_stats.expected
        if now is not None and now > usual:
            return f"has a TTFT of {now * 1000:.0f} ms now, usually {usual * 1000:.0f} ms"
        return f"has a TTFT of {usual * 1000:.0f} ms; lowest first"
    if target_stats.idle:
        return "was not measured in the last five minutes, so it gets one request to measure it"
    return "was not measured yet; a request that measures it is in flight"


def _short(amount: Decimal) -> str:
    return f"{Decimal(f'{amount:.3g}').normalize():f}"
