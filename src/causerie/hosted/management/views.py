"""Answers about objects. Money is text in decimal notation, exact to a billionth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Protocol, Self, TypeVar

from msgspec import Meta, Struct

from causerie.hosted.accounts.authorization import Narrowed
from causerie.hosted.accounts.bounds import Budget, BudgetPeriod, Limit, LimitsAndBudgets, Unit
from causerie.hosted.accounts.issuing import NewKey, NewOperatorKey
from causerie.hosted.accounts.keys import KeyState, LinkKind, NewLink, OperatorKey, Purpose
from causerie.hosted.accounts.people import ProjectMember, Role
from causerie.hosted.accounts.projects import ProjectOverview

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
    return kind(**{name: _shown(_value(source, name)) for name in names}, **values)


def _value(source: object, name: str) -> Any:
    return getattr(source, name) if hasattr(source, name) else getattr(source, f"{name}_id")


def _shown(value: Any) -> Any:
    if isinstance(value, Decimal):
        return amount(value)
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return tuple(map(_shown, value))
    view = _VIEWS.get(type(value))
    return value if view is None else viewed(view, value)


class Answering(Protocol):
    """What a view needs to know besides its object."""

    @property
    def now(self) -> datetime: ...

    def link_path(self, kind: LinkKind, token: str, /) -> str:
        """Return the path of the page where a link of this kind, with this token, is used."""


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


class LimitView(View, frozen=True, kw_only=True):
    """By the minute, and at the same time; ``null`` is unbounded."""

    model: str
    requests_per_minute: int | None
    tokens_per_minute: int | None
    input_tokens_per_minute: int | None
    output_tokens_per_minute: int | None
    concurrent: int | None


class BudgetView(View, frozen=True, kw_only=True):
    """So much, within a period."""

    amount: Amount
    period: BudgetPeriod
    unit: Unit
    model: str
    soft: bool


class BoundsView(View, frozen=True, kw_only=True):
    """All limits and budgets."""

    limits: tuple[LimitView, ...]
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
    """One amount that was put in, or with a minus taken out."""

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
    """Somebody in a project."""

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
    """A link that was just made."""

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
    """Newest first. Those of the settings are not among them."""

    data: list[OperatorKeyView]

    @classmethod
    def of(cls, found: Sequence[OperatorKey], call: Answering) -> Self:
        return cls(data=[viewed(OperatorKeyView, each) for each in found])


class ChangedView(View, frozen=True, kw_only=True):
    """Number of users and projects that have changed."""

    changed: int


class NarrowedView(View, frozen=True, kw_only=True):
    """Losses of a member, in addition to the role or the membership itself."""

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
    Limit: LimitView,
    Budget: BudgetView,
}
"""Views of what is part of others."""
