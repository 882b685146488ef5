"""Answers of the management API; money is text in decimal notation, exact to a billionth."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cache
from itertools import product
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
    get_type_hints,
)

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.authorization import Clock
from causerie.hosted.accounts.bounds import BudgetPeriod, Limit, Unit
from causerie.hosted.accounts.issuing import NewKey
from causerie.hosted.accounts.keys import KeyState, LinkKind, NewLink, Purpose
from causerie.hosted.accounts.people import ProjectMember, Role
from causerie.hosted.accounts.spending import ScopeSpending
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


def viewed(kind: type[V], source: object, call: Any = None, **values: Any) -> V:
    """Return a view of an object: its fields of the same names, and ``values`` for the others.

    Money becomes text, a set a sorted list, and what a view has a view of is shown so. ``project``
    may be ``project_id`` in the object. What an object lacks is in its part :attr:`View.rest`.
    """
    rest = getattr(source, getattr(kind, "rest", ""), None)
    views = _nested_view_by_field(kind)
    for name in kind.__struct_fields__:
        if name not in values:
            values[name] = _render_value(_value_or_id((source, rest), name), views.get(name), call)
    return kind(**values)


@cache
def _nested_view_by_field(view_type: type[Struct]) -> Mapping[str, type[View]]:
    return {
        name: each
        for name, hint in get_type_hints(view_type).items()
        for each in get_args(hint) or (hint,)
        if isinstance(each, type) and issubclass(each, View)
    }


def _value_or_id(sources: Sequence[object], name: str) -> Any:
    places = product(sources, (name, f"{name}_id"))
    return next(getattr(one, each) for one, each in places if hasattr(one, each))


def _render_value(value: Any, view: type[View] | None, call: Any) -> Any:
    if view is not None:
        several = isinstance(value, list | tuple)
        return [view.of(each, call) for each in value] if several else view.of(value, call)
    if isinstance(value, Decimal):
        return amount(value)
    return sorted(value) if isinstance(value, frozenset) else value


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

    rest: ClassVar[str] = ""
    """Attribute of an object with the object that has its other fields."""

    @classmethod
    def of(cls, found: Any, call: Answering) -> Self:
        """Return the view of what a service has returned."""
        return viewed(cls, found, call)


class ListView(View, frozen=True, kw_only=True):
    """Base of the answers that are one list."""

    @classmethod
    def of(cls, found: Any, call: Answering) -> Self:
        [name] = cls.__struct_fields__
        return cls(**{name: _render_value([*found], _nested_view_by_field(cls).get(name), call)})


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
    """Allowed models, doors, providers and highest prices; ``null`` does not restrict."""

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
    """A project with its limits and budgets."""

    rest = "project"
    bounds: BoundsView


class CreditView(View, frozen=True, kw_only=True):
    """A credit of a project; a withdrawal is negative."""

    id: str
    amount: str
    at: Moment
    by: str
    note: str


class CreditsView(View, frozen=True, kw_only=True):
    """Credits paid in, spent and left; ``data`` is every single credit, newest first."""

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

    rest = "user"

    @classmethod
    def of(cls, found: ProjectMember, call: Answering) -> Self:
        return viewed(cls, found, call, user=found.user.id)


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

    rest = "link"
    token: str
    path: str

    @classmethod
    def of(cls, found: NewLink, call: Answering) -> Self:
        return viewed(cls, found, call, path=call.link_path(found.link.kind, found.token))


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
        key = found.key if isinstance(found, NewKey) else found
        return viewed(cls, found, call, state=key.state(call.now))


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

    rest = "key"
    credential: str


class OperatorKeyList(ListView, frozen=True, kw_only=True):
    """Keys of operators, newest first, without those of the settings."""

    data: list[OperatorKeyView]


class ChangedView(View, frozen=True, kw_only=True):
    """Number of users and projects that have changed."""

    changed: int


class NarrowedView(View, frozen=True, kw_only=True):
    """Keys and invitations that a member lost with a role or membership."""

    keys_stopped: list[KeyView]
    keys_transferred: list[KeyView]
    invitations_withdrawn: int


class NewKeyView(KeyView, frozen=True, kw_only=True):
    """A key with its secret."""

    rest = "key"
    credential: str


_MICROSECONDS = 1_000_000
_TIMES = ("queue", "upstream", "first_token", "duration")
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


class UsageView(View, frozen=True, kw_only=True, rename=TOKENS):
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

    @classmethod
    def of(cls, found: UsageSum, call: Answering) -> Self:
        group = Group(**{by.value: name for by, name in found.group.items()})
        return viewed(cls, found, call, group=group)


class BudgetSpending(BudgetView, frozen=True, kw_only=True):
    """A budget and what is spent of it, as text."""

    rest = "budget"
    spent: Amount
    resets_at: Moment | None


class ScopeView(View, frozen=True, kw_only=True):
    """A tag or a provider with its budgets."""

    kind: str
    name: str
    budgets: list[BudgetSpending]

    @classmethod
    def of(cls, found: ScopeSpending, call: Answering) -> Self:
        budgets = [BudgetSpending.of(each, call) for each in found.spending]
        return viewed(cls, found, budgets=budgets)


class ScopeList(ListView, frozen=True, kw_only=True):
    """Budgets of tags and providers, by kind and name."""

    data: list[ScopeView]


class OwnerSpending(ListView, frozen=True, kw_only=True):
    """Spending against the own budgets of a project, or of a person over all projects."""

    budgets: list[BudgetSpending]


class KeySpending(View, frozen=True, kw_only=True):
    """Spending against the key's own budgets, and the time of its last use."""

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


class RequestView(View, frozen=True, kw_only=True, rename=TOKENS | {"finish": "finish_reason"}):
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

    @classmethod
    def of(cls, found: UsageRecord, call: Answering) -> Self:
        times = {name: getattr(found, f"{name}_us") for name in _TIMES}
        seconds = {
            f"{name}_seconds": None if us is None else us / _MICROSECONDS
            for name, us in times.items()
        }
        return viewed(
            cls, found, call, at=found.moment, cost=amount(amount_of(found.cost)), **seconds
        )


class AuditView(View, frozen=True, kw_only=True):
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
    """A part of a list that is sorted by the attributes in ``order``."""

    data: list[T]
    next: Next
    order: ClassVar[Sequence[str]] = ("created_at", "id")
    falling: ClassVar[bool] = False


class UserList(Page[UserView], frozen=True, kw_only=True):
    """Users, sorted by email address."""

    order = ("email", "id")


class ProjectList(Page[ProjectView], frozen=True, kw_only=True):
    """Projects, sorted by name."""

    order = ("name", "id")


class MemberList(Page[MemberView], frozen=True, kw_only=True):
    """Members, sorted by name."""

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
    placed = [
        (tuple(map(_format_cursor_key_part, attrgetter(*kind.order)(each))), each) for each in items
    ]
    placed.sort(key=itemgetter(0), reverse=kind.falling)
    rest = [
        pair
        for pair in placed
        if after is None or (pair[0] < after if kind.falling else pair[0] > after)
    ]
    taken = rest[: query.limit]
    following = cursor(taken[-1][0]) if len(rest) > len(taken) else None
    return kind(data=[view.of(each, call) for _, each in taken], next=following)


def _format_cursor_key_part(value: object) -> str:
    return f"{value:%Y-%m-%dT%H:%M:%S.%f}" if isinstance(value, datetime) else str(value)
