"""Bodies and queries of the operations. An empty text in a query is the same as none."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from causerie.hosted.accounts.bounds import Budget, LimitsAndBudgets
from causerie.hosted.accounts.issuing import Moment, Name, Networks
from causerie.hosted.accounts.people import Role
from causerie.hosted.accounts.records import LONGEST_DAYS, AuditKind
from causerie.hosted.accounts.usage import Step

Email = Annotated[str, Meta(min_length=3, max_length=254)]
Id = Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]
Days = Annotated[int, Meta(ge=1, le=LONGEST_DAYS)]


class Body(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all bodies, which refuse unknown fields."""

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the service method that takes this body."""
        return asdict(self)


class NoBody(Body, frozen=True):
    """No body, or an empty object."""


class ManyBounds(LimitsAndBudgets, frozen=True, kw_only=True):
    """Limits and budgets, and the users and projects that get them."""

    users: Annotated[frozenset[Id], Meta(max_length=10_000)] = frozenset()
    projects: Annotated[frozenset[Id], Meta(max_length=10_000)] = frozenset()
    everyone: bool = False
    members_of: Id | None = None
    keep: bool = False


class ScopeBody(Body, frozen=True):
    """All budgets of a tag or a provider, which replace those of before."""

    kind: Literal["tag", "provider"]
    name: Annotated[str, Meta(min_length=1, max_length=80)]
    budgets: Annotated[tuple[Budget, ...], Meta(max_length=200)] = ()


class CreateUser(Body, frozen=True):
    """An account without a password; a password link lets its owner choose one."""

    email: Email
    name: Name
    operator: bool = False


Rights = frozenset[Literal["read", "people", "configuration", "usage"]]


class SetOperator(Body, frozen=True):
    """Operator status of a user."""

    operator: bool
    rights: Rights = frozenset()


class CreateOperatorKey(Body, frozen=True):
    """A key for programs of operators."""

    name: Name
    rights: Rights = frozenset()
    expires_at: Moment | None = None


InvitedEmail = Email | None


class InviteUser(Body, frozen=True):
    """An invitation to the service."""

    email: InvitedEmail = None
    operator: bool = False


class CreateProject(Body, frozen=True):
    """A project."""

    name: Name
    owner: Id | None = None


class RenameProject(Body, frozen=True):
    """New name of a project."""

    name: Name


class SetNetworks(Body, frozen=True):
    """Networks from which keys of a project work."""

    networks: Networks | None


class SetRecording(Body, frozen=True):
    """Retention of request contents."""

    days: Days | None


class PutCredits(Body, frozen=True):
    """A credit to add; a withdrawal is negative."""

    amount: Decimal
    note: Annotated[str, Meta(max_length=200)] = ""
    payment: Annotated[str, Meta(pattern=r"^([A-Za-z0-9_.-]{1,100})?\Z")] = ""


class InviteMember(Body, frozen=True):
    """An invitation to a project."""

    role: Role = Role.MEMBER
    email: InvitedEmail = None


class ChangeMember(Body, frozen=True):
    """Changes to a member."""

    role: Role


class RotateKey(Body, frozen=True):
    """Time for which older secrets stay valid."""

    grace_seconds: Annotated[int, Meta(ge=0, le=30 * 86_400)] = 86_400

    def arguments(self) -> dict[str, Any]:
        return {"grace": timedelta(seconds=self.grace_seconds)}


class TransferKey(Body, frozen=True):
    """The member who takes over a key."""

    to: Annotated[str, Meta(max_length=64)]


_TIME = r"^(\d{4}-\d{2}-\d{2}([Tt ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?([Zz]|[+ -]\d{2}:\d{2}))?)?$"
_BY = "(project|key|user|model|door|app|tag|provider)"

Filter = Annotated[str, Meta(max_length=256)]
Cursor = Annotated[str, Meta(max_length=2048)]
Flag = Literal["true", "false"]
Since = Annotated[str, Meta(pattern=_TIME)]
Until = Annotated[str, Meta(pattern=_TIME)]


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class PageQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Part of a list."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    cursor: Cursor = ""


class Leaving(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Transfer of the keys of a member who is removed."""

    keys_to: Annotated[str, Meta(max_length=64)] = ""


class Span(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filter of usage; no project means the key's project, for operators all projects."""

    since: Since = ""
    until: Until = ""
    project: Filter = ""
    key: Filter = ""
    user: Filter = ""
    model: Filter = ""


class UsageSpan(Span, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query of sums."""

    door: Filter = ""
    step: Step = Step.DAY
    by: Annotated[str, Meta(pattern=rf"^({_BY}(,{_BY}){{0,5}})?$")] = ""


class UsagePage(UsageSpan, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query of sums, and the part of them to return."""

    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    cursor: Cursor = ""


class LatencySpan(Span, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query of times to the first token."""

    by: Literal["model", "project", "key", "user", ""] = "model"


class RequestSpan(Span, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query of single requests."""

    door: Filter = ""
    status: Annotated[int, Meta(ge=100, le=599)] | UnsetType = UNSET
    request_id: Filter = ""
    tag: Annotated[str, Meta(max_length=256)] = ""
    operation: Annotated[str, Meta(max_length=256)] = ""
    failures: Flag = "false"


class RequestPage(RequestSpan, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query of single requests, and the part of them to return."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    cursor: Cursor = ""


class StatementQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Month and project of a statement; no project means the key's, for operators all projects."""

    month: Annotated[str, Meta(pattern=r"^(\d{4}-(0[1-9]|1[0-2]))?$")] = ""
    project: Filter = ""


class AuditQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query of the audit log."""

    project: Filter = ""
    actor: Annotated[str, Meta(max_length=256)] = ""
    action: Annotated[str, Meta(max_length=256)] = ""
    subject: Filter = ""
    kind: AuditKind | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=500)] = 100
    cursor: Cursor = ""


class RankingQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Period and kind of a ranking."""

    period: Literal["day", "week", "month"] = "week"
    by: Literal["model", "provider"] = "model"
