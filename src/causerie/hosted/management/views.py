"""Answers about objects. Money is text in decimal notation, exact to a billionth."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct, convert
from msgspec.structs import asdict

from causerie.access.allowed import Access
from causerie.hosted.accounts.authorization import Narrowed
from causerie.hosted.accounts.bounds import BudgetPeriod, Credit, LimitsAndBudgets, Unit
from causerie.hosted.accounts.issuing import NewKey
from causerie.hosted.accounts.keys import ApiKey, KeyState, LinkKind, NewLink, OneTimeLink, Purpose
from causerie.hosted.accounts.people import Project, ProjectMember, Role, User

Amount = Annotated[str, Meta(pattern=r"^\d+(\.\d+)?$")]
Moment = Annotated[datetime, Meta(tz=True)]
Networks = Annotated[
    tuple[str, ...] | None, Meta(description="Networks from which keys work; `null`: all.")
]
V = TypeVar("V", bound=Struct)


def amount(value: Decimal) -> str:
    """Return a number in decimal notation, without an exponent or zeros at the end."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def viewed(kind: type[V], source: object, **values: Any) -> V:
    """Return a view of an object: its fields of the same names, and ``values`` for the others."""
    names = kind.__struct_fields__
    return kind(**{name: getattr(source, name) for name in names if name not in values}, **values)


class Me(Struct, frozen=True, kw_only=True):
    """Identity of the request's key."""

    kind: str
    id: str
    name: str
    operator: bool
    rights: frozenset[str]
    project: str | None


class LimitView(Struct, frozen=True, kw_only=True):
    """By the minute, and at the same time; ``null`` is unbounded."""

    model: str
    requests_per_minute: int | None
    tokens_per_minute: int | None
    input_tokens_per_minute: int | None
    output_tokens_per_minute: int | None
    concurrent: int | None


class BudgetView(Struct, frozen=True, kw_only=True):
    """So much, within a period."""

    amount: Amount
    period: BudgetPeriod
    unit: Unit
    model: str
    soft: bool


class BoundsView(Struct, frozen=True, kw_only=True):
    """All limits and budgets."""

    limits: tuple[LimitView, ...]
    budgets: tuple[BudgetView, ...]

    @staticmethod
    def of(bounds: LimitsAndBudgets) -> BoundsView:
        return BoundsView(
            limits=convert(bounds.limits, tuple[LimitView, ...], from_attributes=True),
            budgets=tuple(
                viewed(BudgetView, each, amount=amount(each.amount)) for each in bounds.budgets
            ),
        )


class AccessView(Struct, frozen=True, kw_only=True):
    """Allowed models and doors; ``null`` does not restrict."""

    models: list[str] | None
    doors: list[str] | None
    providers: list[str] | None
    prompt_price: Amount | None
    completion_price: Amount | None

    @staticmethod
    def of(access: Access) -> AccessView:
        values: dict[str, Any] = dataclasses.asdict(access)
        for name, value in values.items():
            if value is not None:
                values[name] = sorted(value) if isinstance(value, frozenset) else amount(value)
        return AccessView(**values)


class UserView(Struct, frozen=True, kw_only=True):
    """A person with an account."""

    id: str
    email: str
    name: str
    operator: bool
    rights: Annotated[
        frozenset[str], Meta(description="What they may do with the whole service, if not all.")
    ]
    created_at: Moment
    disabled_at: Moment | None

    @staticmethod
    def of(user: User) -> UserView:
        return convert(user, UserView, from_attributes=True)


class ProjectView(Struct, frozen=True, kw_only=True):
    """A project."""

    id: str
    name: str
    created_at: Moment
    archived_at: Moment | None
    recording_days: Annotated[
        int | None, Meta(description="Retention of request logging in days; `null`: it is off.")
    ]
    networks: Networks

    @staticmethod
    def of(project: Project) -> ProjectView:
        return convert(project, ProjectView, from_attributes=True)


class ProjectDetails(ProjectView, frozen=True, kw_only=True):
    """A project, with what it may use."""

    bounds: BoundsView

    @staticmethod
    def seen(project: Project, bounds: LimitsAndBudgets) -> ProjectDetails:
        known = asdict(ProjectView.of(project))
        return ProjectDetails(bounds=BoundsView.of(bounds), **known)


class CreditView(Struct, frozen=True, kw_only=True):
    """One amount that was put in, or with a minus taken out."""

    id: str
    amount: str
    at: Moment
    by: str
    note: str

    @staticmethod
    def of(credit: Credit) -> CreditView:
        return viewed(CreditView, credit, amount=amount(credit.amount))


class CreditsView(Struct, frozen=True, kw_only=True):
    """Credits paid in, spent and left; ``data`` is every amount, newest first."""

    put_in: str
    spent: str
    left: str
    data: list[CreditView]


class MemberView(Struct, frozen=True, kw_only=True):
    """Somebody in a project."""

    user: str
    email: str
    name: str
    role: Role
    since: Moment
    from_group: Annotated[
        str, Meta(description="`PROVIDER:GROUP` of the group that gives it; empty: given by hand.")
    ]
    disabled_at: Moment | None

    @staticmethod
    def of(member: ProjectMember) -> MemberView:
        user = member.user
        return viewed(
            MemberView,
            member,
            user=user.id,
            email=user.email,
            name=user.name,
            disabled_at=user.disabled_at,
        )


class MembershipView(Struct, frozen=True, kw_only=True):
    """A user's role in a project."""

    project: str
    user: str
    role: Role
    since: Moment


class LinkView(Struct, frozen=True, kw_only=True):
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

    @staticmethod
    def of(link: OneTimeLink) -> LinkView:
        return viewed(LinkView, link, project=link.project_id, user=link.user_id)


class NewLinkView(LinkView, frozen=True, kw_only=True):
    """A link that was just made."""

    token: Annotated[str, Meta(description="The secret, shown only once.")]
    path: Annotated[
        str, Meta(description="The path of the page that uses it, below the service's address.")
    ]

    @staticmethod
    def made(made: NewLink, path: str) -> NewLinkView:
        return NewLinkView(token=made.token, path=path, **asdict(LinkView.of(made.link)))


class KeyView(Struct, frozen=True, kw_only=True):
    """A key, without its secret."""

    id: Annotated[str, Meta(description="The public part of the key.")]
    project: str
    name: str
    purpose: Purpose
    state: KeyState
    created_by: str
    person: Annotated[
        str, Meta(description="The user that it belongs to; empty for a key of the project itself.")
    ]
    created_at: Moment
    expires_at: Moment | None
    disabled_at: Moment | None
    doors: list[str] | None
    models: list[str] | None
    networks: Networks
    bounds: BoundsView

    @staticmethod
    def of(key: ApiKey, now: datetime) -> KeyView:
        return viewed(
            KeyView,
            key,
            project=key.project_id,
            state=key.state(now),
            doors=None if key.doors is None else sorted(key.doors),
            models=None if key.models is None else sorted(key.models),
            bounds=BoundsView.of(key.bounds),
        )


class OperatorKeyView(Struct, frozen=True, kw_only=True):
    """A key of operators, without its secret."""

    id: Annotated[str, Meta(description="The public part of the key.")]
    name: str
    rights: Annotated[frozenset[str], Meta(description="Empty: all rights of operators.")]
    created_by: str
    created_at: Moment
    expires_at: Moment | None


class NewOperatorKeyView(OperatorKeyView, frozen=True, kw_only=True):
    """A key of operators with its secret."""

    credential: Annotated[str, Meta(description="The whole key, shown only once.")]


class OperatorKeyList(Struct, frozen=True, kw_only=True):
    """Newest first. Those of the settings are not among them."""

    data: list[OperatorKeyView]


class ChangedView(Struct, frozen=True, kw_only=True):
    """Number of users and projects that have changed."""

    changed: int


class NarrowedView(Struct, frozen=True, kw_only=True):
    """Losses of a member, in addition to the role or the membership itself."""

    keys_stopped: list[KeyView]
    keys_transferred: list[KeyView]
    invitations_withdrawn: int

    @staticmethod
    def of(found: Narrowed, now: datetime) -> NarrowedView:
        stopped = [KeyView.of(key, now) for key in found.keys_stopped]
        transferred = [KeyView.of(key, now) for key in found.keys_transferred]
        return viewed(NarrowedView, found, keys_stopped=stopped, keys_transferred=transferred)


class NewKeyView(KeyView, frozen=True, kw_only=True):
    """A key with its secret."""

    credential: Annotated[str, Meta(description="The whole key, shown only once.")]

    @staticmethod
    def made(made: NewKey, now: datetime) -> NewKeyView:
        return NewKeyView(credential=made.credential, **asdict(KeyView.of(made.key, now)))
