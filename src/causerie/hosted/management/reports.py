"""Answers about use and actions, and lists in answers: a page each, and where the next begins."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.audit import AuditEntry
from causerie.hosted.accounts.keys import ApiKey, OneTimeLink
from causerie.hosted.accounts.spending import ScopeSpending, Spending
from causerie.hosted.accounts.usage import By, FirstTokens, Ranking, UsageSum
from causerie.hosted.management.requests import OPERATIONS, PageQuery
from causerie.hosted.management.views import (
    Amount,
    BudgetView,
    KeyView,
    LinkView,
    MemberView,
    Moment,
    ProjectView,
    UserView,
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

    start: Annotated[Moment | None, Meta(description="`null` for the step `all`.")]
    group: Group
    requests: int
    refused: Annotated[int, Meta(description="Requests with a 4xx status, but 499.")]
    failed: Annotated[int, Meta(description="Requests with a 5xx status.")]
    aborted: Annotated[int, Meta(description="Requests that their client aborted (499).")]
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
        return viewed(UsageView, sum, group=group, cost=amount(sum.cost))


class BudgetSpending(BudgetView, frozen=True, kw_only=True):
    """State of a budget; money as text, tokens too."""

    spent: Amount
    resets_at: Annotated[Moment | None, Meta(description="`null` if it never resets.")]

    @staticmethod
    def of(spending: Spending) -> BudgetSpending:
        return viewed(
            BudgetSpending,
            spending.budget,
            amount=amount(spending.budget.amount),
            spent=amount(spending.spent),
            resets_at=spending.resets_at,
        )


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


class ScopeList(Struct, frozen=True, kw_only=True):
    """By kind and name."""

    data: list[ScopeView]


class PersonSpending(Struct, frozen=True, kw_only=True):
    """State of the person's own budgets, over all projects."""

    budgets: list[BudgetSpending]


class KeySpending(Struct, frozen=True, kw_only=True):
    """State of the key's own budgets."""

    last_used_at: Annotated[
        Moment | None, Meta(description="Time of the last request; `null`: never used.")
    ]
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
    app: Annotated[str, Meta(description="Name of the application, if the client sent one.")]
    referer: Annotated[str, Meta(description="Address of the application, if the client sent one.")]
    tag: Annotated[str, Meta(description="The client's header `X-Tag`, if it sent one.")]
    door: str
    model: str
    operation: Annotated[str, Meta(description=OPERATIONS)]
    served_by: str
    stream: bool
    status: int
    code: str | None
    param: Annotated[str | None, Meta(description="The field that caused the error.")]
    reason: Annotated[str, Meta(description="The error message, unless it quotes the request.")]
    finish: str | None
    attempts: int
    tried: Annotated[tuple[str, ...], Meta(description="Targets tried, each with its failure.")]
    continued: Annotated[int, Meta(description="How often another target continued the reply.")]
    prompt: int
    cached: int
    cache_miss: Annotated[
        str,
        Meta(
            description="Why less of the prompt was cached than the turn before had computed; "
            "empty if it was not."
        ),
    ]
    written: Annotated[
        int, Meta(description="Prompt tokens that the provider wrote into its cache at a price.")
    ]
    completion: int
    reasoning: int
    units: Annotated[int, Meta(description="Search units of a rerank; 1 of embeddings.")]
    cost: Amount
    estimated: Annotated[
        bool,
        Meta(description="Whether tokens were estimated because the target reported no usage."),
    ]
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

    @staticmethod
    def of(entry: AuditEntry) -> AuditView:
        return viewed(AuditView, entry, project=entry.project_id)


class RankedView(Struct, frozen=True, kw_only=True):
    """A model or provider, and its tokens: prompts and replies."""

    rank: int
    model: str | UnsetType = UNSET
    provider: str | UnsetType = UNSET
    tokens: int
    requests: int
    rank_before: Annotated[
        int | None, Meta(description="Rank in the period before; `null` if it was not used then.")
    ]


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


Next = Annotated[str | None, Meta(description="`cursor` of the next page; `null`: the last.")]
T = TypeVar("T")
P = TypeVar("P")


class Page(Struct, Generic[T], frozen=True, kw_only=True):
    """A part of a list."""

    data: list[T]
    next: Next


class UserList(Page[UserView], frozen=True, kw_only=True):
    """By address."""


class ProjectList(Page[ProjectView], frozen=True, kw_only=True):
    """By name."""


class MemberList(Page[MemberView], frozen=True, kw_only=True):
    """By name."""


class LinkList(Page[LinkView], frozen=True, kw_only=True):
    """Oldest first."""


class KeyList(Page[KeyView], frozen=True, kw_only=True):
    """Newest first."""


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


def by_creation(each: OneTimeLink | ApiKey) -> tuple[str, str]:
    return f"{each.created_at:%Y-%m-%dT%H:%M:%S.%f}", each.id


def page_of(
    kind: Callable[..., P],
    view: Callable[[T], Struct],
    items: Sequence[T],
    query: PageQuery,
    place: Callable[[Any], tuple[str, str]] = by_creation,
    *,
    falling: bool = False,
) -> P:
    """Return a page of this ``kind`` of views, out of all items in the order of ``place``."""
    after = place_of(query.cursor, tuple[str, str])
    ordered = sorted(items, key=place, reverse=falling)
    rest = [
        each
        for each in ordered
        if after is None or (place(each) < after if falling else place(each) > after)
    ]
    taken = rest[: query.limit]
    following = cursor(place(taken[-1])) if len(rest) > len(taken) else None
    return kind(data=[view(each) for each in taken], next=following)
