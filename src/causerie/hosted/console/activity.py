"""The page of activity: single requests, newest first, each with the explanation of its outcome."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.reports import request_rows
from causerie.hosted.accounts.usage import By, RecordFilter, provider_of
from causerie.hosted.console.fields import LONGEST_PERIOD, ReportPeriod, period
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.console.usage import DisplayNames, names_of
from causerie.hosted.console.words import WORDS
from causerie.http.answers import Export, csv_pieces
from causerie.metering.ledger import CLIENT_GONE, UsageRecord
from causerie.metering.meter import MOST_BYTES

CODES: Mapping[str, str] = WORDS["requests"]["codes"]
FINISHES: Mapping[str, str] = WORDS["requests"]["finishes"]
APIS: Mapping[str, str] = WORDS["requests"]["apis"]


class ExplainedAttempt(Struct, frozen=True):
    """A target that was asked; ``failure`` is empty for the one that answered."""

    target: str
    failure: str = ""


class TimelineSegment(Struct, frozen=True):
    """A part of a request's time: ``x`` (its start) and ``width`` are percentages of the whole."""

    name: str
    kind: str
    seconds: float
    x: float
    width: float


class RequestExplanation(Struct, frozen=True):
    """A request as its page explains it: why it ended so, and where its time went."""

    record: UsageRecord
    caller: str = ""
    project: str = ""

    @property
    def tone(self) -> str:
        if self.record.status < 400:
            return "good"
        return "bad" if self.record.status >= 500 else "warn"

    @property
    def outcome(self) -> str:
        record = self.record
        if record.status == CLIENT_GONE:
            return "client left"
        if record.status >= 400:
            return "failed" if record.status >= 500 else "rejected"
        return record.finish.replace("_", " ") if record.finish else "answered"

    @property
    def why(self) -> str:
        if self.record.status < 400:
            return FINISHES.get(self.record.finish or "", "The answer is complete.")
        return CODES.get(self.record.code or "", "")

    @property
    def speed(self) -> float | None:
        """Return the tokens per second after the first token."""
        record = self.record
        if record.first_token_us is None or record.completion < 2:
            return None
        seconds = (record.duration_us - record.first_token_us) / 1_000_000
        return (record.completion - 1) / seconds if seconds > 0 else None

    @property
    def provider(self) -> str:
        return provider_of(self.record.served_by)

    @property
    def attempts(self) -> Sequence[ExplainedAttempt]:
        # Lines are like `target: failure`; a request with a single target has none.
        record = self.record
        if not record.tried and record.served_by:
            failure = record.code or "failed" if record.status >= 500 else ""
            return [ExplainedAttempt(record.served_by, failure)]
        made = []
        for line in record.tried:
            target, _, failure = line.rpartition(": ")
            made.append(ExplainedAttempt(target or line, "" if failure == "answered" else failure))
        return made

    @property
    def times(self) -> Sequence[TimelineSegment]:
        record, whole = self.record, self.record.duration_us
        if whole <= 0:
            return ()
        first, what = whole, "until the end"
        if record.first_token_us is not None:
            first, what = min(record.first_token_us, whole), "time to first token"
        queued = (min(record.queue_us, first), "queue", "in the queue")
        made, at = [], 0
        for end, kind, name in (queued, (first, "wait", what), (whole, "stream", "generation")):
            if end > at:
                x, width = round(at / whole * 100, 2), round((end - at) / whole * 100, 2)
                made.append(TimelineSegment(name, kind, (end - at) / 1_000_000, x, width))
                at = end
        return made


PAGE = 25
SEARCHED = 200
"""Requests of a page whose contents are searched; each is decrypted for it."""
_FIELDS = ("model", "key", "user", "tag", "operation", "request_id")  # as of `RecordFilter`
_PLACE = re.compile(r"\d{1,18}~[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


async def show(context: RequestContext) -> None:
    project, query = context.scope, context.query
    when, wanted = _read_period_and_filter(context)
    found = await context.accounts.usage.requests(context.actor, project, wanted)
    looked, more = found[: wanted.limit - 1], len(found) >= wanted.limit
    shown = await _filter_records_by_text(context, project, looked)
    kept = frozenset[str]()
    if project is not None:
        ids = [each.id for each in shown]
        kept = await context.accounts.recordings.kept(context.actor, project, ids)
    keys = await names_of(context, project, By.KEY)
    users = await names_of(context, project, By.USER)
    projects = await names_of(context, project, By.PROJECT) if project is None else DisplayNames({})
    filters = query.given((*_FIELDS, "status", "text"))
    if wanted.failures_only:
        filters["failures"] = "yes"
    live = query.get("live") == "yes" and "text" not in filters  # a search decrypts what it reads

    def address(**more: str) -> str:
        return "?" + urlencode({**when.fields(), **filters, **more})

    await context.send_page(
        "activity.html",
        filters=filters,
        entries=[_explain_request(each, keys, users, projects) for each in shown],
        kept=kept,
        older=address(before=f"{looked[-1].at}~{looked[-1].id}") if more else "",
        paged=wanted.before is not None,
        newest=address(),
        live=live,
        pausing=address() if live else address(live="yes"),
        period=when,
        apis=APIS,
        keys=keys.known,
        people=users.known,
        searched=len(looked) if "text" in filters and project else 0,
    )


async def download(context: RequestContext) -> None:
    """Send as CSV all requests that match the page's filter, without its search in contents."""
    wanted = replace(_read_period_and_filter(context)[1], before=None)
    rows = request_rows(context.accounts.usage, context.actor, context.scope, wanted)
    await context.save(Export("text/csv; charset=utf-8", "requests.csv", csv_pieces(rows)))


async def show_contents(context: RequestContext) -> None:
    project, id = context.project, context.params["record"]
    one = await context.accounts.recordings.see(context.actor, project.id, id)
    await context.send_page(
        "contents.html",
        at=one.at,
        until=one.at + timedelta(days=project.recording_days or 0),
        said=[
            ("Request", _format_json_unless_cut(one.request, cut=one.request_cut), one.request_cut),
            ("Reply", _format_json_unless_cut(one.reply, cut=one.reply_cut), one.reply_cut),
        ],
        most=MOST_BYTES // 1024,
    )


async def _filter_records_by_text(
    context: RequestContext, project_id: str | None, records: Sequence[UsageRecord]
) -> Sequence[UsageRecord]:
    text = context.query.get("text")
    if not text or project_id is None:
        return records
    ids = [each.id for each in records]
    found = await context.accounts.recordings.search(context.actor, project_id, ids, text)
    return [each for each in records if each.id in found]


def _format_json_unless_cut(text: str, *, cut: bool) -> str:
    return text if cut or not text else msgspec.json.format(text)


def _read_period_and_filter(context: RequestContext) -> tuple[ReportPeriod, RecordFilter]:
    query, when = context.query, period(context.query, context.services.clock())
    filters: dict[str, Any] = query.given(_FIELDS)
    # A request that is named by its id is found whenever it was.
    since = when.until - LONGEST_PERIOD if "request_id" in filters else when.since
    return when, RecordFilter(
        since,
        when.until,
        **filters,
        status=_parse_exact_status_code(query.get("status")),
        failures_only=query.get("failures") == "yes",
        before=_parse_page_cursor(query.get("before")),
        limit=(SEARCHED if query.get("text") else PAGE) + 1,
    )


def _parse_exact_status_code(text: str) -> int | None:
    if text and not re.fullmatch("[0-9]{3}", text):
        raise InvalidRequest("A status is a number like 200 or 429.", param="status")
    return int(text) if text else None


def _parse_page_cursor(text: str) -> tuple[int, str] | None:
    if not text:
        return None
    if not _PLACE.fullmatch(text):
        raise InvalidRequest("`before` is not the end of a page.", param="before")
    at, _, id = text.partition("~")
    return int(at), id


def _explain_request(
    record: UsageRecord, keys: DisplayNames, users: DisplayNames, projects: DisplayNames
) -> RequestExplanation:
    by_hand = not record.key and record.user
    caller = f"{users.of(record.user)}, playground" if by_hand else keys.of(record.key)
    return RequestExplanation(record, caller, projects.of(record.project))
