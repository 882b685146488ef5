"""Files to download: single requests, the statement of a month, and logged contents.

A row of a table is a list of texts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.accounts import Accounts
from causerie.hosted.accounts.people import Actor
from causerie.hosted.accounts.recordings import Recordings
from causerie.hosted.accounts.records import Recording
from causerie.hosted.accounts.usage import (
    ChargedQuery,
    ChargedSum,
    RecordFilter,
    provider_of,
)
from causerie.metering.ledger import UsageRecord

Rows = AsyncGenerator[Iterable[Sequence[str]]]
_SECOND = 1_000_000

_REQUEST = (
    *("at", "request_id", "project", "key", "user", "tag", "app", "door", "operation", "model"),
    *("provider", "served_by", "attempts", "status", "code", "reason", "finish_reason", "stream"),
    *("prompt_tokens", "cached_tokens", "cache_write_tokens", "completion_tokens"),
    *("reasoning_tokens", "units", "cost", "estimated"),
    *("queue_seconds", "first_token_seconds", "duration_seconds"),
)
_STATEMENT = (
    *("month", "project", "project_name", "tag", "provider", "provider_model", "model"),
    *("requests", "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens"),
    *("reasoning_tokens", "units", "cost"),
)


async def request_rows(
    accounts: Accounts, actor: Actor, project: str | None, filter: RecordFilter
) -> Rows:
    """Yield single requests, newest first, of one project or the whole service."""
    yield [_REQUEST]
    async with aclosing(accounts.usage.every_request(actor, project, filter)) as pieces:
        async for records in pieces:
            yield map(_request_row, records)


def _request_row(one: UsageRecord) -> Sequence[str]:
    first = one.first_token_us
    return [
        f"{one.moment:%Y-%m-%dT%H:%M:%S.%fZ}",
        *(one.request_id, one.project, one.key, one.user, one.tag, one.app, one.door),
        *(one.operation, one.model, provider_of(one.served_by), one.served_by),
        *(str(one.attempts), str(one.status), one.code or "", one.reason, one.finish or ""),
        str(one.stream).lower(),
        *map(str, (one.prompt, one.cached, one.written, one.completion, one.reasoning, one.units)),
        *(f"{one.amount:f}", str(one.estimated).lower()),
        *("" if us is None else f"{us / _SECOND:.6f}" for us in (one.queue_us, first)),
        f"{one.duration_us / _SECOND:.6f}",
    ]


@dataclass(frozen=True, slots=True)
class Month:
    """A month in UTC, from ``since`` up to ``until``."""

    since: datetime

    @staticmethod
    def named(text: str, now: datetime) -> Month:
        """Return the month of a name like ``2026-11``; without one that before ``now``."""
        try:
            year, month = map(
                int, (text or f"{_month_start(now) - timedelta(days=1):%Y-%m}").split("-")
            )
            return Month(_month_start(now).replace(year=year, month=month))
        except ValueError as failure:
            raise InvalidRequest("A month looks like 2026-11.", param="month") from failure

    @property
    def until(self) -> datetime:
        return _month_start(self.since + timedelta(days=31))

    @property
    def name(self) -> str:
        return f"{self.since:%Y-%m}"


def _month_start(at: datetime) -> datetime:
    return at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


async def statement_rows(
    accounts: Accounts, actor: Actor, project: str | None, month: Month
) -> Rows:
    """Yield what a month's requests were charged for, by project, tag, target and model.

    Input tokens are those that were neither read from a cache nor written into it.
    """
    yield [_STATEMENT]
    if project is None:
        known = await accounts.projects.every(actor)
    else:
        known = [(await accounts.projects.see(actor, project)).project]
    names = {one.id: one.name for one in known}
    question = ChargedQuery(month.since, month.until, project)
    async with aclosing(accounts.usage.charged(actor, question)) as pieces:
        async for sums in pieces:
            yield (_statement_row(one, month.name, names.get(one.project_id, "")) for one in sums)


def _statement_row(one: ChargedSum, month: str, name: str) -> Sequence[str]:
    provider = provider_of(one.served_by)
    plain = one.prompt - one.cached - one.written
    counts = (one.requests, plain, one.cached, one.written, one.completion, one.reasoning)
    return [
        *(month, one.project_id, name, one.tag, provider),
        one.served_by.removeprefix(f"{provider}/"),
        *(one.model, *map(str, (*counts, one.units)), f"{one.cost:f}"),
    ]


async def contents_lines(
    recordings: Recordings, actor: Actor, project: str
) -> AsyncGenerator[bytes]:
    """Yield the logged contents of a project as JSON lines, oldest first."""
    async with aclosing(recordings.export(actor, project)) as pieces:
        async for found in pieces:
            yield await asyncio.to_thread(b"".join, map(_json_line, found))


def _json_line(one: Recording) -> bytes:
    # What was cut is a text in place of JSON.
    said = {"request": (one.request, one.request_cut), "reply": (one.reply, one.reply_cut)}
    line = {
        **{"id": one.id, "at": one.at, "project": one.project_id, "user": one.user_id},
        **{
            name: text if cut else msgspec.Raw(text.encode()) if text else None
            for name, (text, cut) in said.items()
        },
        "cut": [name for name, (_, cut) in said.items() if cut],
    }
    return msgspec.json.encode(line) + b"\n"
