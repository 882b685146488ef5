"""Lists in answers: a page each, and where the next begins.

A cursor says after what the next page begins, not at which number, so that
what is made or deleted meanwhile neither repeats nor hides anything else.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from causerie.accounts.keys import ApiKey
from causerie.accounts.links import OneTimeLink
from causerie.errors import InvalidRequest
from causerie.management.queries import PageQuery
from causerie.management.reports import AuditView, LatencyView, RequestView, UsageView
from causerie.management.views import KeyView, LinkView, MemberView, ProjectView, UserView

Next = Annotated[str | None, Meta(description="`cursor` of the next page; `null`: the last.")]
T = TypeVar("T")
P = TypeVar("P")


class UserList(Struct, frozen=True, kw_only=True):
    """By address."""

    data: list[UserView]
    next: Next


class ProjectList(Struct, frozen=True, kw_only=True):
    """By name."""

    data: list[ProjectView]
    next: Next


class MemberList(Struct, frozen=True, kw_only=True):
    """By name."""

    data: list[MemberView]
    next: Next


class LinkList(Struct, frozen=True, kw_only=True):
    """Oldest first."""

    data: list[LinkView]
    next: Next


class KeyList(Struct, frozen=True, kw_only=True):
    """Newest first."""

    data: list[KeyView]
    next: Next


class UsageList(Struct, frozen=True, kw_only=True):
    """By time, then by group."""

    data: list[UsageView]
    next: Next


class LatencyList(Struct, frozen=True, kw_only=True):
    """By name; what has none comes last."""

    data: list[LatencyView]


class RequestList(Struct, frozen=True, kw_only=True):
    """Newest first."""

    data: list[RequestView]
    next: Next


class AuditList(Struct, frozen=True, kw_only=True):
    """Newest first."""

    data: list[AuditView]
    next: Next


def cursor(place: object) -> str:
    """A place in a list, as text."""
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
    """Return the error for a cursor that none of our pages gave."""
    return InvalidRequest("`cursor` takes `next` of the page before, unchanged.", param="cursor")


def by_creation(each: OneTimeLink | ApiKey) -> tuple[str, str]:
    """Return the place of what has a moment of its own."""
    return f"{each.created_at:%Y-%m-%dT%H:%M:%S.%f}", each.id


def page_of(
    kind: Callable[..., P],
    view: Callable[[T], Struct],
    items: Sequence[T],
    query: PageQuery,
    place: Callable[[T], tuple[str, str]],
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
