"""The page of activity: single requests, newest first, each with its explanation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlencode

import msgspec

from causerie.accounts.usage import By, RecordFilter
from causerie.console.explanations import RequestExplanation, explain
from causerie.console.fields import FormFields
from causerie.console.names import DisplayNames, names_of
from causerie.console.periods import LENGTHS, LONGEST, ReportPeriod, period
from causerie.console.request_context import RequestContext
from causerie.errors import InvalidRequest
from causerie.metering.contents import MOST_BYTES
from causerie.metering.ledger import UsageRecord

PAGE = 30
SEARCHED = 200
"""Requests of a page whose contents are searched; each is decrypted for it."""
_FIELDS = ("model", "key", "user", "tag", "status", "request_id", "text")
_PLACE = re.compile(r"\d{1,18}~[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ActivityEntry:
    """One request on the page; ``caller`` is its key, or who used the playground."""

    record: UsageRecord
    caller: str
    project: str
    explained: RequestExplanation


async def show(context: RequestContext) -> None:
    view = await context.project()
    await _page(context, view.project.id)


async def show_service(context: RequestContext) -> None:
    await _page(context, None)


async def _page(context: RequestContext, project: str | None) -> None:
    query = context.query
    when = period(query, context.services.clock())
    wanted = asked(query, when)
    found = await context.accounts.usage.requests(context.actor, project, wanted)
    most = wanted.limit - 1
    looked, more = found[:most], len(found) > most
    shown = await _containing(context, project, looked)
    keys, users = (
        await names_of(context, project, By.KEY),
        await names_of(context, project, By.USER),
    )
    projects = await names_of(context, project, By.PROJECT) if project is None else DisplayNames({})
    given = {name: query.get(name) for name in _FIELDS}
    fields = {**when.fields(), **{name: value for name, value in given.items() if value}}
    if wanted.failures_only:
        fields["failures"] = "yes"
    await context.show(
        "activity.html",
        here=context.exchange.path,
        filters={name: value for name, value in fields.items() if name not in when.fields()},
        entries=[_entry(each, keys, users, projects) for each in shown],
        kept=await _kept(context, project, shown),
        older=_older(fields, looked) if more else "",
        paged=wanted.before is not None,
        newest="?" + urlencode(fields),
        period=when,
        lengths=LENGTHS,
        given=given,
        failures=wanted.failures_only,
        in_force=sum(map(bool, given.values())) + wanted.failures_only,
        keys=keys.known,
        people=users.known,
        searched=len(looked) if given["text"] and project else 0,
        whole=project is None,
    )


async def show_contents(context: RequestContext) -> None:
    """``GET /projects/{project}/activity/{record}``: what was said, where the project keeps it."""
    project = (await context.project()).project
    found = await context.accounts.recordings.see(
        context.actor, project.id, context.params["record"]
    )
    await context.show(
        "contents.html",
        at=found.at,
        until=found.at + timedelta(days=project.recording_days or 0),
        said=[
            ("Request", _readable(found.request, cut=found.request_cut), found.request_cut),
            ("Reply", _readable(found.reply, cut=found.reply_cut), found.reply_cut),
        ],
        most=MOST_BYTES // 1024,
    )


async def _containing(
    context: RequestContext, project: str | None, records: Sequence[UsageRecord]
) -> Sequence[UsageRecord]:
    """Return the requests whose prompt or reply contains the text that is searched."""
    text = context.query.get("text")
    if not text or project is None:
        return records
    ids = [each.id for each in records]
    found = await context.accounts.recordings.search(context.actor, project, ids, text)
    return [each for each in records if each.id in found]


async def _kept(
    context: RequestContext, project: str | None, shown: Sequence[UsageRecord]
) -> frozenset[str]:
    """The requests whose contents one may see."""
    if project is None:
        return frozenset()
    ids = [each.id for each in shown]
    return await context.accounts.recordings.kept(context.actor, project, ids)


def _readable(text: str, *, cut: bool) -> str:
    """With lines, where it is whole."""
    return text if cut or not text else msgspec.json.format(text)


def asked(query: FormFields, when: ReportPeriod) -> RecordFilter:
    """Return the requests that an address names; raise :class:`InvalidRequest`."""
    id = query.get("request_id") or None
    since = when.until - LONGEST if id else when.since  # a request is found whenever it was
    return RecordFilter(
        since,
        when.until,
        key=query.get("key") or None,
        user=query.get("user") or None,
        model=query.get("model") or None,
        tag=query.get("tag") or None,
        status=_status(query.get("status")),
        request_id=id,
        failures_only=query.get("failures") == "yes",
        before=_before(query.get("before")),
        limit=(SEARCHED if query.get("text") else PAGE) + 1,
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


def _entry(
    record: UsageRecord, keys: DisplayNames, users: DisplayNames, projects: DisplayNames
) -> ActivityEntry:
    by_hand = not record.key and record.user
    return ActivityEntry(
        record,
        f"{users.of(record.user)}, playground" if by_hand else keys.of(record.key),
        projects.of(record.project),
        explain(record),
    )
