"""Queries of the operations. An empty text is the same as none."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from causerie.accounts.audit import AuditKind
from causerie.accounts.usage import Step

_TIME = r"^(\d{4}-\d{2}-\d{2}([Tt ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?([Zz]|[+ -]\d{2}:\d{2}))?)?$"
_BY = "(project|key|user|model|door|app|tag)"

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
    door: Filter = ""


class UsageSpan(Span, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query of sums."""

    step: Annotated[Step, Meta(description="Length of an interval, in UTC.")] = Step.DAY
    by: Annotated[
        str,
        Meta(
            pattern=rf"^({_BY}(,{_BY}){{0,5}})?$",
            description="Grouping: any of `project`, `key`, `user`, `model` and "
            "`door`, separated by commas. Or `app`, the application as named by the client, "
            "which can be combined with `project` and `model` only; or `tag`, the client's header "
            "`X-Tag`, with `project`, `user` and `model` only.",
        ),
    ] = ""


class UsagePage(UsageSpan, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query of sums, and the part of them to return."""

    limit: Annotated[int, Meta(ge=1, le=10_000, description="Maximum number of entries.")] = 1000
    cursor: Cursor = ""


class LatencySpan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of which requests."""

    since: Since = ""
    until: Until = ""
    by: Annotated[
        Literal["model", "project", "key", "user", ""],
        Meta(description="Grouping; empty: all together."),
    ] = "model"
    project: Filter = ""
    key: Filter = ""
    user: Filter = ""
    model: Filter = ""


class RequestPage(Span, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query of single requests."""

    status: Annotated[int, Meta(ge=100, le=599)] | UnsetType = UNSET
    request_id: Filter = ""
    tag: Annotated[str, Meta(max_length=256, description="The header `X-Tag` of the client.")] = ""
    failures: Annotated[Flag, Meta(description="Only requests with a status of 400 or above.")] = (
        "false"
    )
    limit: Annotated[int, Meta(ge=1, le=1000, description="Maximum number of entries.")] = 100
    cursor: Cursor = ""


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
