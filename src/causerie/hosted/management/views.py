"""Answers about objects, use and actions, and lists in answers: a page each, and where the next
begins. Money is text in decimal notation, exact to a billionth.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from operator import attrgetter, itemgetter
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    Self,
    TypeVar,
    get_args,
)

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.authorization import Clock, Narrowed
from causerie.hosted.accounts.bounds import Budget, BudgetPeriod, Limit, LimitsAndBudgets, Unit
from causerie.hosted.accounts.issuing import NewKey, NewOperatorKey
from causerie.hosted.accounts.keys import KeyState, LinkKind, NewLink, OperatorKey, Purpose
from causerie.hosted.accounts.people import ProjectMember, Role
from causerie.hosted.accounts.projects import ProjectOverview
from causerie.hosted.accounts.spending import ScopeSpending, Spending
from causerie.hosted.accounts.usage import By, FirstTokens, Ranking, UsageSum
from causerie.hosted.management.requests import PageQuery
from causerie.metering.ledger import UsageRecord
from causerie.protocol.money import amount_of

Amount = Annotated[str, Meta(pattern=r"^\d+(\.\d+)?$")]
Moment = Annotated[datetime, Meta(tz=True)]
Networks = tuple[str, ...] | None
V = TypeVar("V", bound=Struct)


def amount(value: Decimal) -> str:
    """Return a number in decimal notation, without an exponent or zeros at the end."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def viewed(kind: type[V], source: object, **values: Any) -> V:
    """Return a view of an object: its fields of the same names, and ``values`` for the others.

    Money becomes text, a set a sorted list. ``project`` may be ``project_id`` in the object.
    """
    names = [name for name in kind.__struct_fields__ if name not in values]
    return kind(**{name: _shown_value(_value_of(source, name)) for name in names}, **values)


def _value_of(source: object, name: str) -> Any:
    return getattr(source, name) if hasattr(source, name) else getattr(source, f"{name}_id")


def _shown_value(value: Any) -> Any:
    if isinstance(value, Decimal):
        return amount(value)
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return tuple(map(_shown_value, value))
    view = _VIEWS.get(type(value))
    return value if view is None else viewed(view, value)


LinkPath = Callable[[LinkKind, str], str]
"""Returns the path of the page where a link of this kind, with this token, is used."""


@dataclass(frozen=True, slots=True)
class Answering:
    """The context of a view: the time, and the paths of links."""

    clock: Clock
    link_path: LinkPath

    @property
    def now(self) -> datetime:
        return self.clock()


class View(Struct, frozen=True, kw_only=True):
    """Base of the answers about objects."""

    @classmethod
    def of(cls, found: Any, call: Answering) -> Self:
        """Return the view of what a service has returned."""
        return viewed(cls, found)


class Me(View, frozen=True, kw_only=True):
    """Identity of the request's key."""

    kind: str
    id: str
    name: str
    operator: bool
    rights: frozenset[str]
    project: str | None


class BudgetView(View, frozen=True, kw_only=True):
    """A budget: an amount of money or tokens per period."""

    amount: Amount
    period: BudgetPeriod
    unit: Unit
    model: str
    soft: bool


class BoundsView(View, frozen=True, kw_only=True):
    """All limits and budgets."""

    limits: tuple[Limit, ...]
    budgets: tuple[BudgetView, ...]


class AccessView(View, frozen=True, kw_only=True):
    """Allowed models and doors; ``null`` does not restrict."""

    models: list[str] | None
    doors: list[str] | None
    providers: list[str] | None
    prompt_price: Amount | None
    completion_price: Amount | None


class UserView(View, frozen=True, kw_only=True):
    """A person with an account."""

    id: str
    email: str
    name: str
    operator: bool
    rights: frozenset[str]
    created_at: Moment
    disabled_at: Moment | None


class ProjectView(View, frozen=True, kw_only=True):
    """A project."""

    id: str
    name: str
    created_at: Moment
    archived_at: Moment | None
    recording_days: int | None
    networks: Networks


class ProjectDetails(ProjectView, frozen=True, kw_only=True):
    """A project, with what it may use."""

    bounds: BoundsView

    @classmethod
    def of(cls, found: ProjectOverview, call: Answering) -> Self:
        return viewed(cls, found.project, bounds=viewed(BoundsView, found.bounds))


class CreditView(View, frozen=True, kw_only=True):
    """A credit of a project; a withdrawal is negative."""

    id: str
    amount: str
    at: Moment
    by: str
    note: str


class CreditsView(View, frozen=True, kw_only=True):
    """Credits paid in, spent and left; ``data`` is every amount, newest first."""

    put_in: str
    spent: str
    left: str
    data: list[CreditView]


class MemberView(View, frozen=True, kw_only=True):
    """A member of a project."""

    user: str
    email: str
    name: str
    role: Role
    since: Moment
    from_group: str
    disabled_at: Moment | None

    @classmethod
    def of(cls, found: ProjectMember, call: Answering) -> Self:
        own = {name: getattr(found, name) for name in ("role", "since", "from_group")}
        return viewed(cls, found.user, user=found.user.id, **own)


class MembershipView(View, frozen=True, kw_only=True):
    """A user's role in a project."""

    project: str
    user: str
    role: Role
    since: Moment


class LinkView(View, frozen=True, kw_only=True):
    """A link that works once."""

    id: str
    kind: LinkKind
    email: str | None
    project: str | None
    role: Role | None
    operator: bool
    user: str | None
    created_by: str
    created_at: Moment
    expires_at: Moment


class NewLinkView(LinkView, frozen=True, kw_only=True):
    """A new link with its token."""

    token: str
    path: str

    @classmethod
    def of(cls, found: NewLink, call: Answering) -> Self:
        path = call.link_path(found.link.kind, found.token)
        return viewed(cls, found.link, token=found.token, path=path)


class KeyView(View, frozen=True, kw_only=True):
    """A key, without its secret."""

    id: str
    project: str
    name: str
    purpose: Purpose
    state: KeyState
    created_by: str
    person: str
    created_at: Moment
    expires_at: Moment | None
    disabled_at: Moment | None
    doors: list[str] | None
    models: list[str] | None
    networks: Networks
    bounds: BoundsView

    @classmethod
    def of(cls, found: Any, call: Answering) -> Self:
        return viewed(cls, found, state=found.state(call.now))


class OperatorKeyView(View, frozen=True, kw_only=True):
    """A key of operators, without its secret."""

    id: str
    name: str
    rights: frozenset[str]
    created_by: str
    created_at: Moment
    expires_at: Moment | None


class NewOperatorKeyView(OperatorKeyView, frozen=True, kw_only=True):
    """A key of operators with its secret."""

    credential: str

    @classmethod
    def of(cls, found: NewOperatorKey, call: Answering) -> Self:
        return viewed(cls, found.key, credential=found.credential)


class OperatorKeyList(View, frozen=True, kw_only=True):
    """Keys of operators, newest first, without those of the settings."""

    data: list[OperatorKeyView]

    @classmethod
    def of(cls, found: Sequence[OperatorKey], call: Answering) -> Self:
        return cls(data=[viewed(OperatorKeyView, each) for each in found])


class ChangedView(View, frozen=True, kw_only=True):
    """Number of users and projects that have changed."""

    changed: int


class NarrowedView(View, frozen=True, kw_only=True):
    """Keys and invitations that a member lost with a role or membership."""

    keys_stopped: list[KeyView]
    keys_transferred: list[KeyView]
    invitations_withdrawn: int

    @classmethod
    def of(cls, found: Narrowed, call: Answering) -> Self:
        stopped = [KeyView.of(key, call) for key in found.keys_stopped]
        transferred = [KeyView.of(key, call) for key in found.keys_transferred]
        return viewed(cls, found, keys_stopped=stopped, keys_transferred=transferred)


class NewKeyView(KeyView, frozen=True, kw_only=True):
    """A key with its secret."""

    credential: str

    @classmethod
    def of(cls, found: NewKey, call: Answering) -> Self:
        key = found.key
        return viewed(cls, key, state=key.state(call.now), credential=found.credential)


_VIEWS: Mapping[type, type[View]] = {
    LimitsAndBudgets: BoundsView,
    Budget: BudgetView,
}
"""Views of what is part of others."""


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
    """A budget and what is spent of it, as text."""

    spent: Amount
    resets_at: Moment | None

    @classmethod
    def of(cls, found: Spending, call: Answering | None = None) -> Self:
        state = {"spent": amount(found.spent), "resets_at": found.resets_at}
        return viewed(cls, found.budget, **state)


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
    """Budgets of tags and providers, by kind and name."""

    data: list[ScopeView]

    @classmethod
    def of(cls, found: Sequence[ScopeSpending], call: Answering) -> Self:
        return cls(data=[ScopeView.of(each) for each in found])


class OwnerSpending(View, frozen=True, kw_only=True):
    """State of the own budgets of a project, or of a person over all projects."""

    budgets: list[BudgetSpending]

    @classmethod
    def of(cls, found: Sequence[Spending], call: Answering) -> Self:
        return cls(budgets=[BudgetSpending.of(each) for each in found])


class KeySpending(Struct, frozen=True, kw_only=True):
    """State of the key's own budgets."""

    last_used_at: Moment | None
    budgets: list[BudgetSpending]


class LatencyView(Struct, frozen=True, kw_only=True):
    """Percentiles of the seconds to the first token of one group."""

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
    """A request without its contents. Without a key or project these are empty."""

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
    """An entry of the audit log."""

    id: int
    at: Moment
    actor: str
    actor_name: str
    action: str
    subject: str
    project: str | None
    details: Mapping[str, str]


class RankedView(Struct, frozen=True, kw_only=True):
    """A model or provider with the tokens of its prompts and replies."""

    rank: int
    model: str | UnsetType = UNSET
    provider: str | UnsetType = UNSET
    tokens: int
    requests: int
    rank_before: int | None


class RankingList(Struct, frozen=True, kw_only=True):
    """Models or providers by tokens from `since` up to `until`, the most first."""

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
    """Users, by address."""

    order = ("email", "id")


class ProjectList(Page[ProjectView], frozen=True, kw_only=True):
    """Projects, by name."""

    order = ("name", "id")


class MemberList(Page[MemberView], frozen=True, kw_only=True):
    """Members, by name."""

    order = ("user.name", "user.id")


class LinkList(Page[LinkView], frozen=True, kw_only=True):
    """Links, oldest first."""


class KeyList(Page[KeyView], frozen=True, kw_only=True):
    """Keys, newest first."""

    falling = True


class UsageList(Page[UsageView], frozen=True, kw_only=True):
    """Sums of usage, by time, then by group."""


class LatencyList(Struct, frozen=True, kw_only=True):
    """Times to the first token, by name; groups without a name come last."""

    data: list[LatencyView]


class RequestList(Page[RequestView], frozen=True, kw_only=True):
    """Requests, newest first."""


class AuditList(Page[AuditView], frozen=True, kw_only=True):
    """Entries of the audit log, newest first."""


def cursor(place: object) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).rstrip(b"=").decode()


def place_of(cursor: str, type: type[P]) -> P | None:
    """Decode a cursor; return ``None`` for an empty one, and raise :class:`InvalidRequest`."""
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
    placed = [(tuple(map(_text_of_value, attrgetter(*kind.order)(each))), each) for each in items]
    placed.sort(key=itemgetter(0), reverse=kind.falling)
    rest = [
        pair
        for pair in placed
        if after is None or (pair[0] < after if kind.falling else pair[0] > after)
    ]
    taken = rest[: query.limit]
    following = cursor(taken[-1][0]) if len(rest) > len(taken) else None
    return kind(data=[view.of(each, call) for _, each in taken], next=following)


def _text_of_value(value: object) -> str:
    return f"{value:%Y-%m-%dT%H:%M:%S.%f}" if isinstance(value, datetime) else str(value)
