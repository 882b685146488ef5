"""The audit log as a page: newest first, narrowed down by who and what."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from causerie.accounts.audit import AuditEntry, AuditFilter
from causerie.console.request_context import RequestContext

_COUNT = 50


@dataclass(frozen=True, slots=True)
class AuditListing:
    """Address and source of a page of audit entries."""

    path: str
    entries: Callable[[AuditFilter], Awaitable[Sequence[AuditEntry]]]


async def show_audit(context: RequestContext, page: AuditListing) -> None:
    """Send one page of the log."""
    query = context.query
    before = query.get("before")
    known = before.isascii() and before.isdigit() and len(before) < 19
    found = await page.entries(
        AuditFilter(
            actor=query.get("actor") or None,
            action=query.get("action") or None,
            subject=query.get("subject") or None,
            before=int(before) if known else None,
            limit=_COUNT + 1,
        )
    )
    kept = {name: query.get(name) for name in ("actor", "action", "subject") if query.get(name)}
    shown = found[:_COUNT]
    more = urlencode(kept | {"before": str(shown[-1].id)}) if len(found) > _COUNT else ""
    await context.show(
        "audit.html", entries=shown, path=page.path, more=more, kept=kept, paged=bool(before)
    )
