"""The page of activity: single requests, newest first, each with its explanation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import msgspec

from causerie.accounts.usage import By, RecordFilter
from causerie.console.explanations import Explanation, explain
from causerie.console.fields import Fields
from causerie.console.names import Names, names_of
from causerie.console.periods import LENGTHS, LONGEST, Period, period
from causerie.console.visit import Visit
from causerie.errors import InvalidRequest
from causerie.metering.contents import MOST_BYTES
from causerie.metering.ledger import UsageRecord

PAGE = 50
_FIELDS = ("model", "key", "status", "request_id")
_PLACE = re.compile(r"\d{1,18}~[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Entry:
    """One request on the page; ``caller`` is its key, or who used the playground."""

    at: datetime
    caller: str
    project: str
    explained: Explanation

    @property
    def record(self) -> UsageRecord:
        """What is known of it."""
        return self.explained.record


async def show(visit: Visit) -> None:
    """``GET /projects/{project}/activity``."""
    view = await visit.project()
    await _page(visit, view.project.id)


async def show_service(visit: Visit) -> None:
    """``GET /operator/activity``."""
    await _page(visit, None)


async def _page(visit: Visit, project: str | None) -> None:
    query = visit.query
    when = period(query, visit.desk.clock())
    wanted = asked(query, when)
    found = await visit.accounts.usage.requests(visit.actor, project, wanted)
    shown, more = found[:PAGE], len(found) > PAGE
    keys, users = await names_of(visit, project, By.KEY), await names_of(visit, project, By.USER)
    projects = await names_of(visit, project, By.PROJECT) if project is None else Names({})
    given = {name: query.get(name) for name in _FIELDS}
    fields = {**when.fields(), **{name: value for name, value in given.items() if value}}
    if wanted.failures_only:
        fields["failures"] = "yes"
    await visit.show(
        "activity.html",
        here=visit.exchange.path,
        filters={name: value for name, value in fields.items() if name not in when.fields()},
        entries=[_entry(each, keys, users, projects) for each in shown],
        kept=await _kept(visit, project, shown),
        older=_older(fields, shown) if more else "",
        paged=wanted.before is not None,
        newest="?" + urlencode(fields),
        period=when,
        lengths=LENGTHS,
        given=given,
        failures=wanted.failures_only,
        filtered=any(given.values()) or wanted.failures_only,
        keys=keys.known,
        whole=project is None,
    )


async def show_contents(visit: Visit) -> None:
    """``GET /projects/{project}/activity/{record}``: what was said, where the project keeps it."""
    project = (await visit.project()).project
    found = await visit.accounts.recordings.see(visit.actor, project.id, visit.params["record"])
    await visit.show(
        "contents.html",
        at=found.at,
        until=found.at + timedelta(days=project.recording_days or 0),
        said=[
            ("Request", _readable(found.request, cut=found.request_cut), found.request_cut),
            ("Reply", _readable(found.reply, cut=found.reply_cut), found.reply_cut),
        ],
        most=MOST_BYTES // 1024,
    )


async def _kept(visit: Visit, project: str | None, shown: Sequence[UsageRecord]) -> frozenset[str]:
    """The requests whose contents one may see."""
    if project is None:
        return frozenset()
    ids = [each.id for each in shown]
    return await visit.accounts.recordings.kept(visit.actor, project, ids)


def _readable(text: str, *, cut: bool) -> str:
    """With lines, where it is whole."""
    return text if cut or not text else msgspec.json.format(text)


def asked(query: Fields, when: Period) -> RecordFilter:
    """Which requests an address means; raises :class:`InvalidRequest`."""
    id = query.get("request_id") or None
    since = when.until - LONGEST if id else when.since  # a request is found whenever it was
    return RecordFilter(
        since,
        when.until,
        key=query.get("key") or None,
        model=query.get("model") or None,
        status=_status(query.get("status")),
        request_id=id,
        failures_only=query.get("failures") == "yes",
        before=_before(query.get("before")),
        limit=PAGE + 1,
    )


def _status(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) == 3):
        raise InvalidRequest("A status is a number like 200 or 429.", param="status")
    return int(text)


def _before(text: str) -> tuple[int, str] | None:
    if not text:
        return None
    if not _PLACE.fullmatch(text):
        raise InvalidRequest("`before` is not the end of a page.", param="before")
    at, _, id = text.partition("~")
    return int(at), id


def _older(fields: Mapping[str, str], shown: Sequence[UsageRecord]) -> str:
    last = shown[-1]
    return "?" + urlencode({**fields, "before": f"{last.at}~{last.id}"})


def _entry(record: UsageRecord, keys: Names, users: Names, projects: Names) -> Entry:
    by_hand = not record.key and record.user
    return Entry(
        _EPOCH + timedelta(microseconds=record.at),
        f"{users.of(record.user)}, playground" if by_hand else keys.of(record.key),
        projects.of(record.project),
        explain(record),
    )
