"""Answers about use and actions, and lists in answers: a page each, and where the next begins."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import attrgetter, itemgetter
from typing import (
    Any,
    ClassVar,
    Generic,
    Literal,
    Self,
    TypeVar,
    get_args,
)

import msgspec
from msgspec import UNSET, Struct, UnsetType

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.spending import ScopeSpending, Spending
from causerie.hosted.accounts.usage import By, FirstTokens, Ranking, UsageSum
from causerie.hosted.management.requests import PageQuery
from causerie.hosted.management.views import (
    Amount,
    Answering,
    BudgetView,
    KeyView,
    LinkView,
    MemberView,
    Moment,
    ProjectView,
    UserView,
    View,
    amount,
    viewed,
)
from causerie.metering.ledger import UsageRecord
from causerie.protocol.money import amount_of

_MICROSECONDS = 1_000_000
TOKENS = {name: f"{name}_tokens" for name in ("prompt", "cached", "completion", "reasoning")} | {
    "written": "cache_write_tokens"
}
"""Fields of records and their names in answers."""


class Group(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Group of sums; only the requested dimensions are present."""

    project: str | None = None
    key: str | None = None
    user: str | None = None
    model: str | None = None
    door: str | None = None
    app: str | None = None
    tag: str | None = None
    provider: str | None = None


class UsageView(Struct, frozen=True, kw_only=True, rename=TOKENS):
    """Sums over the requests of one interval and group; times are means."""

    start: Moment | None
    group: Group
    requests: int
    refused: int
    failed: int
    aborted: int
    prompt: int
    cached: int
    written: int
    completion: int
    reasoning: int
    cost: Amount
    first_token_seconds: float | None
    duration_seconds: float

    @staticmethod
    def of(sum: UsageSum) -> UsageView:
        group = Group(**{by.value: name for by, name in sum.group.items()})
        return viewed(UsageView, sum, group=group)


class BudgetSpending(BudgetView, frozen=True, kw_only=True):
    """State of a budget; money as text, tokens too."""

    spent: Amount
    resets_at: Moment | None

    @classmethod
    def of(cls, found: Spending, call: Answering | None = None) -> Self:
        state = {"spent": amount(found.spent), "resets_at": found.resets_at}
        return viewed(cls, found.budget, **state)


class ProjectSpending(Struct, frozen=True, kw_only=True):
    """State of the project's own budgets."""

    budgets: list[BudgetSpending]


class ScopeView(Struct, frozen=True, kw_only=True):
    """A tag or a provider with its budgets."""

    kind: str
    name: str
    budgets: list[BudgetSpending]

    @staticmethod
    def of(scope: ScopeSpending) -> ScopeView:
        return viewed(
            ScopeView, scope, budgets=[BudgetSpending.of(each) for each in scope.spending]
        )


class ScopeList(View, frozen=True, kw_only=True):
    """By kind and name."""

    data: list[ScopeView]

    @classmethod
    def of(cls, found: Sequence[ScopeSpending], call: Answering) -> Self:
        return cls(data=[ScopeView.of(each) for each in found])


class PersonSpending(View, frozen=True, kw_only=True):
    """State of the person's own budgets, over all projects."""

    budgets: list[BudgetSpending]

    @classmethod
    def of(cls, found: Sequence[Spending], call: Answering) -> Self:
        return cls(budgets=[BudgetSpending.of(each) for each in found])


class KeySpending(Struct, frozen=True, kw_only=True):
    """State of the key's own budgets."""

    last_used_at: Moment | None
    budgets: list[BudgetSpending]


class LatencyView(Struct, frozen=True, kw_only=True):
    """Seconds to the first token, as percentiles; alongside them what they were asked by."""

    project: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    user: str | UnsetType = UNSET
    p50: float
    p90: float
    p99: float

    @staticmethod
    def of(first: FirstTokens, by: Sequence[By]) -> LatencyView:
        p50, p90, p99 = first.times
        group: dict[str, Any] = {each.value: first.group for each in by}
        return LatencyView(p50=p50, p90=p90, p99=p99, **group)


class RequestView(Struct, frozen=True, kw_only=True, rename=TOKENS | {"finish": "finish_reason"}):
    """One request; never what it said. Without a key or project these are empty."""

    id: str
    request_id: str
    at: Moment
    project: str
    key: str
    user: str
    app: str
    referer: str
    tag: str
    door: str
    model: str
    operation: str
    served_by: str
    stream: bool
    status: int
    code: str | None
    param: str | None
    reason: str
    finish: str | None
    attempts: int
    tried: tuple[str, ...]
    continued: int
    prompt: int
    cached: int
    cache_miss: str
    written: int
    completion: int
    reasoning: int
    units: int
    cost: Amount
    estimated: bool
    queue_seconds: float
    upstream_seconds: float
    first_token_seconds: float | None
    duration_seconds: float

    @staticmethod
    def of(record: UsageRecord) -> RequestView:
        first = record.first_token_us
        return viewed(
            RequestView,
            record,
            at=record.moment,
            cost=amount(amount_of(record.cost)),
            queue_seconds=record.queue_us / _MICROSECONDS,
            upstream_seconds=record.upstream_us / _MICROSECONDS,
            first_token_seconds=None if first is None else first / _MICROSECONDS,
            duration_seconds=record.duration_us / _MICROSECONDS,
        )


class AuditView(Struct, frozen=True, kw_only=True):
    """One thing that was done."""

    id: int
    at: Moment
    actor: str
    actor_name: str
    action: str
    subject: str
    project: str | None
    details: Mapping[str, str]


class RankedView(Struct, frozen=True, kw_only=True):
    """A model or provider, and its tokens: prompts and replies."""

    rank: int
    model: str | UnsetType = UNSET
    provider: str | UnsetType = UNSET
    tokens: int
    requests: int
    rank_before: int | None


class RankingList(Struct, frozen=True, kw_only=True):
    """Those with the most tokens first, from `since` up to `until`."""

    since: datetime
    until: datetime
    data: list[RankedView]

    @staticmethod
    def of(ranking: Ranking, by: Literal["model", "provider"]) -> RankingList:
        unset = {"model": UNSET, "provider": UNSET}
        data = [viewed(RankedView, each, **(unset | {by: each.name})) for each in ranking.rows]
        return viewed(RankingList, ranking, data=data)


Next = str | None
T = TypeVar("T")
P = TypeVar("P")


class Page(Struct, Generic[T], frozen=True, kw_only=True):
    """A part of a list, whose order is that of these attributes."""

    data: list[T]
    next: Next
    order: ClassVar[Sequence[str]] = ("created_at", "id")
    falling: ClassVar[bool] = False


class UserList(Page[UserView], frozen=True, kw_only=True):
    """By address."""

    order = ("email", "id")


class ProjectList(Page[ProjectView], frozen=True, kw_only=True):
    """By name."""

    order = ("name", "id")


class MemberList(Page[MemberView], frozen=True, kw_only=True):
    """By name."""

    order = ("user.name", "user.id")


class LinkList(Page[LinkView], frozen=True, kw_only=True):
    """Oldest first."""


class KeyList(Page[KeyView], frozen=True, kw_only=True):
    """Newest first."""

    falling = True


class UsageList(Page[UsageView], frozen=True, kw_only=True):
    """By time, then by group."""


class LatencyList(Struct, frozen=True, kw_only=True):
    """By name; what has none comes last."""

    data: list[LatencyView]


class RequestList(Page[RequestView], frozen=True, kw_only=True):
    """Newest first."""


class AuditList(Page[AuditView], frozen=True, kw_only=True):
    """Newest first."""


def cursor(place: object) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).rstrip(b"=").decode()


def place_of(cursor: str, type: type[P]) -> P | None:
    """The place that a cursor says; ``None`` for the beginning. Raises :class:`InvalidRequest`."""
    if not cursor:
        return None
    try:
        decoded = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        return msgspec.json.decode(decoded, type=type)
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise no_cursor() from error


def no_cursor() -> InvalidRequest:
    return InvalidRequest("`cursor` takes `next` of the page before, unchanged.", param="cursor")


def page_of(kind: type[Page[Any]], items: Sequence[Any], query: PageQuery, call: Answering) -> Any:
    """Return a page of this kind out of all items, in the order of the kind."""
    [view] = get_args(kind.__orig_bases__[0])  # type: ignore[attr-defined]
    after = place_of(query.cursor, tuple[str, str])
    placed = [(tuple(map(_text, attrgetter(*kind.order)(each))), each) for each in items]
    placed.sort(key=itemgetter(0), reverse=kind.falling)
    rest = [
        pair
        for pair in placed
        if after is None or (pair[0] < after if kind.falling else pair[0] > after)
    ]
    taken = rest[: query.limit]
    following = cursor(taken[-1][0]) if len(rest) > len(taken) else None
    return kind(data=[view.of(each, call) for _, each in taken], next=following)


def _text(value: object) -> str:
    return f"{value:%Y-%m-%dT%H:%M:%S.%f}" if isinstance(value, datetime) else str(value)
