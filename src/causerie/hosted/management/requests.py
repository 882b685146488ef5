"""Bodies and queries of the operations. An empty text in a query is the same as none."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from causerie.access.allowed import Access
from causerie.hosted.accounts.audit import AuditKind
from causerie.hosted.accounts.bounds import Budget, BudgetPeriod, Limit, LimitsAndBudgets, Unit
from causerie.hosted.accounts.keys import Purpose
from causerie.hosted.accounts.people import Role
from causerie.hosted.accounts.records import LONGEST_DAYS
from causerie.hosted.accounts.usage import Step

Name = Annotated[str, Meta(min_length=1, max_length=100)]
Email = Annotated[str, Meta(min_length=3, max_length=254)]
Id = Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]
Word = Annotated[str, Meta(min_length=1, max_length=200)]
Moment = Annotated[datetime, Meta(tz=True)]
Count = Annotated[int, Meta(ge=1, le=2**53 - 1)]
Days = Annotated[int, Meta(ge=1, le=LONGEST_DAYS)]
Names = Annotated[frozenset[Word], Meta(max_length=500)]
Networks = Annotated[
    tuple[Word, ...],
    Meta(max_length=200, description="Addresses or networks like `10.0.0.0/8`; none: all."),
]


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


class BudgetBody(Body, frozen=True):
    """So much, within a period."""

    amount: Annotated[Decimal, Meta(description="In decimal notation; tokens are whole.")]
    period: Annotated[BudgetPeriod, Meta(description="When it resets, in UTC.")] = (
        BudgetPeriod.MONTH
    )
    unit: Unit = Unit.MONEY
    model: Annotated[str, Meta(max_length=200, description="Empty: all models together.")] = ""
    soft: Annotated[bool, Meta(description="It refuses nothing; its use is notified.")] = False


class BoundsBody(Body, frozen=True):
    """All limits and budgets; what is not in it ends."""

    limits: Annotated[tuple[LimitBody, ...], Meta(max_length=200)] = ()
    budgets: Annotated[tuple[BudgetBody, ...], Meta(max_length=200)] = ()

    def bounds(self) -> LimitsAndBudgets:
        return LimitsAndBudgets(
            tuple(Limit(**asdict(each)) for each in self.limits),
            tuple(Budget(**asdict(each)) for each in self.budgets),
        )


Price = Annotated[Decimal, Meta(description="Highest price of 1M tokens, in decimal notation.")]


class ManyBounds(BoundsBody, frozen=True):
    """Limits and budgets, and whose they are."""

    users: Annotated[frozenset[Id], Meta(max_length=10_000)] = frozenset()
    projects: Annotated[frozenset[Id], Meta(max_length=10_000)] = frozenset()
    everyone: Annotated[bool, Meta(description="All users.")] = False
    members_of: Annotated[Id | None, Meta(description="All members of this project.")] = None
    keep: Annotated[
        bool, Meta(description="Former limits and budgets stay which no new one replaces.")
    ] = False


class ScopeBody(Body, frozen=True):
    """All budgets of a tag or a provider; what is not in it ends."""

    kind: Literal["tag", "provider"]
    name: Annotated[str, Meta(min_length=1, max_length=80)]
    budgets: Annotated[tuple[BudgetBody, ...], Meta(max_length=200)] = ()


class AccessBody(Body, frozen=True):
    """Allowed models and doors; ``null`` does not restrict, what is not in it ends."""

    models: Annotated[
        Names | None, Meta(description="Names; with `*` at the end all that begin so.")
    ] = None
    doors: Names | None = None
    providers: Annotated[
        Names | None, Meta(description="`causerie`: models that this service runs itself.")
    ] = None
    prompt_price: Price | None = None
    completion_price: Price | None = None

    def access(self) -> Access:
        return Access(**asdict(self))


class CreateUser(Body, frozen=True):
    """An account without a password; a password link lets its owner choose one."""

    email: Email
    name: Name
    operator: bool = False


Rights = Annotated[
    frozenset[Literal["read", "people", "configuration", "usage"]],
    Meta(description="What it is limited to; empty: all rights of operators."),
]


class SetOperator(Body, frozen=True):
    """Operator status of a user."""

    operator: bool
    rights: Rights = frozenset()


class CreateOperatorKey(Body, frozen=True):
    """A key for programs of operators."""

    name: Name
    rights: Rights = frozenset()
    expires_at: Moment | None = None


InvitedEmail = Annotated[
    Email | None,
    Meta(description="Address that may use the link; if empty, anyone with the link."),
]


class InviteUser(Body, frozen=True):
    """An invitation to the service."""

    email: InvitedEmail = None
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


class SetNetworks(Body, frozen=True):
    """Networks from which keys of a project work."""

    networks: Networks | None


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
    payment: Annotated[
        str,
        Meta(
            pattern=r"^([A-Za-z0-9_.-]{1,100})?\Z",
            description="Id of the payment, if any. Sent again, it adds nothing.",
        ),
    ] = ""


class InviteMember(Body, frozen=True):
    """An invitation to a project."""

    role: Role = Role.MEMBER
    email: InvitedEmail = None


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
    networks: Networks | None = None
    bounds: BoundsBody = BoundsBody()


class EditKey(Body, frozen=True):
    """Changes to a key; omitted fields keep their values."""

    name: Name | UnsetType = UNSET
    expires_at: Moment | UnsetType | None = UNSET
    doors: Names | UnsetType | None = UNSET
    models: Names | UnsetType | None = UNSET
    networks: Networks | UnsetType | None = UNSET
    bounds: BoundsBody | UnsetType = UNSET


class RotateKey(Body, frozen=True):
    """Time for which older secrets stay valid."""

    grace_seconds: Annotated[int, Meta(ge=0, le=30 * 86_400, description="At most 30 days.")] = (
        86_400
    )


class TransferKey(Body, frozen=True):
    """New person of a key."""

    to: Annotated[str, Meta(max_length=64, description="Id of a member of its project.")]


_TIME = r"^(\d{4}-\d{2}-\d{2}([Tt ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?([Zz]|[+ -]\d{2}:\d{2}))?)?$"
_BY = "(project|key|user|model|door|app|tag|provider)"

OPERATIONS = (
    "The API: `chat` (chat completions), `responses`, `messages`, `embeddings`, `rerank` or "
    "`completions`."
)
Filter = Annotated[str, Meta(max_length=256)]
Cursor = Annotated[
    str, Meta(max_length=2048, description="`next` of the page before; without it, the first page.")
]
Flag = Literal["true", "false"]
Since = Annotated[
    str, Meta(pattern=_TIME, description="RFC 3339, or a day. Without it, 30 days before `until`.")
]
Until = Annotated[
    str, Meta(pattern=_TIME, description="RFC 3339, or a day; not included. Without it, now.")
]


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing."""


class PageQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Part of a list."""

    limit: Annotated[int, Meta(ge=1, le=1000, description="Maximum number of entries.")] = 100
    cursor: Cursor = ""


class Leaving(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Transfer of the keys of a member who is removed."""

    keys_to: Annotated[
        str,
        Meta(
            max_length=64,
            description="Member that their keys are transferred to; if empty, they are withdrawn.",
        ),
    ] = ""


class Span(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filter of usage; without a project that of the key's, or for operators of all."""

    since: Since = ""
    until: Until = ""
    project: Filter = ""
    key: Filter = ""
    user: Filter = ""
    model: Filter = ""


class UsageSpan(Span, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query of sums."""

    door: Filter = ""
    step: Annotated[Step, Meta(description="Length of an interval, in UTC.")] = Step.DAY
    by: Annotated[
        str,
        Meta(
            pattern=rf"^({_BY}(,{_BY}){{0,5}})?$",
            description="Grouping: any of `project`, `key`, `user`, `model` and "
            "`door`, separated by commas. Or `app`, the application as named by the client, "
            "which can be combined with `project` and `model` only; or `tag`, the client's header "
            "`X-Tag`, with `project`, `user` and `model` only; or `provider`, with `project` and "
            "`model` only.",
        ),
    ] = ""


class UsagePage(UsageSpan, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query of sums, and the part of them to return."""

    limit: Annotated[int, Meta(ge=1, le=10_000, description="Maximum number of entries.")] = 1000
    cursor: Cursor = ""


class LatencySpan(Span, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of which requests."""

    by: Annotated[
        Literal["model", "project", "key", "user", ""],
        Meta(description="Grouping; empty: all together."),
    ] = "model"


class RequestSpan(Span, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query of single requests."""

    door: Filter = ""
    status: Annotated[int, Meta(ge=100, le=599)] | UnsetType = UNSET
    request_id: Filter = ""
    tag: Annotated[str, Meta(max_length=256, description="The header `X-Tag` of the client.")] = ""
    operation: Annotated[str, Meta(max_length=256, description=OPERATIONS)] = ""
    failures: Annotated[Flag, Meta(description="Only requests with a status of 400 or above.")] = (
        "false"
    )


class RequestPage(RequestSpan, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query of single requests, and the part of them to return."""

    limit: Annotated[int, Meta(ge=1, le=1000, description="Maximum number of entries.")] = 100
    cursor: Cursor = ""


class StatementQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Month and project of a statement; without a project as in the other queries of usage."""

    month: Annotated[
        str,
        Meta(
            pattern=r"^(\d{4}-(0[1-9]|1[0-2]))?$",
            description="Like `2026-11`, in UTC. Without it, the month before this one.",
        ),
    ] = ""
    project: Filter = ""


class AuditQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query of the audit log."""

    project: Filter = ""
    actor: Annotated[str, Meta(max_length=256, description="Like `user:ID` or `key:ID`.")] = ""
    action: Annotated[str, Meta(max_length=256, description="Like `key.create`.")] = ""
    subject: Filter = ""
    kind: Annotated[AuditKind, Meta(description="What an entry is about.")] | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=500, description="Maximum number of entries.")] = 100
    cursor: Cursor = ""


class RankingQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Period and kind of a ranking."""

    period: Annotated[
        Literal["day", "week", "month"],
        Meta(description="The last 24 hours, or the last 7 or 30 days with today, in UTC."),
    ] = "week"
    by: Annotated[Literal["model", "provider"], Meta(description="What is ranked.")] = "model"
