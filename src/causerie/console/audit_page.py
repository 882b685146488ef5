"""The audit log as a page: newest first, narrowed down by who and what."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from causerie.accounts.audit import AuditEntry, AuditFilter, AuditKind
from causerie.accounts.people import SYSTEM
from causerie.accounts.usage import By
from causerie.console.audit_sentences import KINDS, OF_PROJECTS, AuditWords
from causerie.console.names import names_of
from causerie.console.request_context import RequestContext
from causerie.errors import InvalidRequest
from causerie.protocol.numbers import whole_number

_COUNT = 50
_LAST = 10**18 - 1
_FIELDS = ("kind", "actor", "action", "subject")


@dataclass(frozen=True, slots=True)
class AuditListing:
    """Address and source of a page of audit entries; ``project`` is the id of a project's log."""

    path: str
    entries: Callable[[AuditFilter], Awaitable[Sequence[AuditEntry]]]
    project: str | None = None


async def show_audit(context: RequestContext, page: AuditListing) -> None:
    """Send one page of the log."""
    query = context.query
    before = whole_number(query.get("before"), _LAST)
    found = await page.entries(
        AuditFilter(
            actor=query.get("actor") or None,
            action=query.get("action") or None,
            subject=query.get("subject") or None,
            kind=_kind(query.get("kind")),
            before=before,
            limit=_COUNT + 1,
        )
    )
    kept = {name: query.get(name) for name in _FIELDS if query.get(name)}
    shown = found[:_COUNT]
    more = urlencode(kept | {"before": str(shown[-1].id)}) if len(found) > _COUNT else ""
    whole = page.project is None
    people = (await names_of(context, page.project, By.USER)).known
    projects = (await names_of(context, None, By.PROJECT)).known if whole else {}
    words = AuditWords(people, projects, whole=whole)
    await context.show(
        "audit.html",
        rows=[words.row(each) for each in shown],
        path=page.path,
        more=more,
        kept=kept,
        without={name: _address(page.path, kept, name) for name in kept},
        paged=bool(query.get("before")),
        kinds={kind: KINDS[kind] for kind in (KINDS if whole else OF_PROJECTS)},
        actors=_actors(people, kept.get("actor", "")),
    )


def _kind(text: str) -> AuditKind | None:
    try:
        return AuditKind(text) if text else None
    except ValueError as failure:
        words = f"A kind is one of {', '.join(AuditKind)}."
        raise InvalidRequest(words, param="kind") from failure


def _actors(people: Mapping[str, str], chosen: str) -> Mapping[str, str]:
    """Return the names of actors that can be chosen, by label; with the one that is chosen."""
    ordered = sorted(people.items(), key=lambda each: each[1].casefold())
    named = {SYSTEM.label: SYSTEM.name} | {f"user:{id}": name for id, name in ordered}
    return {chosen: chosen, **named} if chosen else named


def _address(path: str, kept: Mapping[str, str], name: str) -> str:
    """Return the path of the log without one of its filters."""
    rest = urlencode({each: value for each, value in kept.items() if each != name})
    return f"{path}?{rest}" if rest else path
