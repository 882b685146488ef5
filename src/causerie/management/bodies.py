"""Bodies of requests."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from causerie.accounts.bounds import Budget, BudgetPeriod, Limit, LimitsAndBudgets, Unit
from causerie.accounts.keys import Purpose
from causerie.accounts.people import Role
from causerie.accounts.recording import LONGEST_DAYS

Name = Annotated[str, Meta(min_length=1, max_length=100)]
Email = Annotated[str, Meta(min_length=3, max_length=254)]
Id = Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]
Word = Annotated[str, Meta(min_length=1, max_length=200)]
Moment = Annotated[datetime, Meta(tz=True)]
Count = Annotated[int, Meta(ge=1, le=2**53 - 1)]
Days = Annotated[int, Meta(ge=1, le=LONGEST_DAYS)]
Names = Annotated[frozenset[Word], Meta(max_length=500)]


class Body(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all bodies: no field that is unknown."""


class NoBody(Body, frozen=True):
    """Nothing, or an empty object."""


class LimitBody(Body, frozen=True):
    """By the minute, and at the same time."""

    model: Annotated[str, Meta(max_length=200, description="Empty: all models together.")] = ""
    requests_per_minute: Count | None = None
    tokens_per_minute: Count | None = None
    input_tokens_per_minute: Count | None = None
    output_tokens_per_minute: Count | None = None
    concurrent: Count | None = None

    def limit(self) -> Limit:
        """As accounts know it."""
        return Limit(**asdict(self))


class BudgetBody(Body, frozen=True):
    """So much, within a period."""

    amount: Annotated[Decimal, Meta(description="In decimal notation; tokens are whole.")]
    period: Annotated[BudgetPeriod, Meta(description="When it resets, in UTC.")] = (
        BudgetPeriod.MONTH
    )
    unit: Unit = Unit.MONEY
    model: Annotated[str, Meta(max_length=200, description="Empty: all models together.")] = ""


class BoundsBody(Body, frozen=True):
    """All limits and budgets; what is not in it ends."""

    limits: Annotated[tuple[LimitBody, ...], Meta(max_length=200)] = ()
    budgets: Annotated[tuple[BudgetBody, ...], Meta(max_length=200)] = ()

    def bounds(self) -> LimitsAndBudgets:
        """As accounts know them."""
        return LimitsAndBudgets(
            tuple(each.limit() for each in self.limits),
            tuple(Budget(**asdict(each)) for each in self.budgets),
        )


class CreateUser(Body, frozen=True):
    """An account without a password; a password link lets its owner choose one."""

    email: Email
    name: Name
    operator: bool = False


class SetOperator(Body, frozen=True):
    """Operator status of a user."""

    operator: bool


class InviteUser(Body, frozen=True):
    """An invitation to the service."""

    email: Annotated[
        Email | None,
        Meta(description="Address that may use the link; if empty, anyone with the link."),
    ] = None
    operator: bool = False


class CreateProject(Body, frozen=True):
    """A project."""

    name: Name
    owner: Annotated[
        Id | None, Meta(description="Id of the owner; if empty, the project has no members.")
    ] = None


class RenameProject(Body, frozen=True):
    """Changes to a project."""

    name: Name


class SetRecording(Body, frozen=True):
    """Retention of request contents."""

    days: Annotated[
        Days | None, Meta(description="Retention in days; `null` turns request logging off.")
    ]


class PutCredits(Body, frozen=True):
    """Money, or with a minus, money that is taken out again."""

    amount: Annotated[Decimal, Meta(description="In decimal notation.")]
    note: Annotated[
        str, Meta(max_length=200, description="Shown in the list and in the audit log.")
    ] = ""


class InviteMember(Body, frozen=True):
    """An invitation to a project."""

    role: Role = Role.MEMBER
    email: Annotated[
        Email | None,
        Meta(description="Address that may use the link; if empty, anyone with the link."),
    ] = None


class ChangeMember(Body, frozen=True):
    """Changes to a member."""

    role: Role


class CreateKey(Body, frozen=True):
    """A key. ``null`` for doors and models: all that the project has; empty: none."""

    name: Name
    purpose: Purpose = Purpose.INFERENCE
    expires_at: Moment | None = None
    doors: Names | None = None
    models: Names | None = None
    bounds: BoundsBody = BoundsBody()


class EditKey(Body, frozen=True):
    """Changes to a key; omitted fields keep their values."""

    name: Name | UnsetType = UNSET
    expires_at: Moment | UnsetType | None = UNSET
    doors: Names | UnsetType | None = UNSET
    models: Names | UnsetType | None = UNSET
    bounds: BoundsBody | UnsetType = UNSET


class RotateKey(Body, frozen=True):
    """Time for which older secrets stay valid."""

    grace_seconds: Annotated[int, Meta(ge=0, le=30 * 86_400, description="At most 30 days.")] = (
        86_400
    )


class TransferKey(Body, frozen=True):
    """New person of a key."""

    to: Annotated[str, Meta(max_length=64, description="Id of a member of its project.")]
