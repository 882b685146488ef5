"""Response headers of an answer: its target, changes to the request, and times."""

from __future__ import annotations

from collections.abc import Sequence

from causerie.catalog.catalog import Entry
from causerie.metering.meter import Record
from causerie.protocol.request import ChatRequest
from causerie.routing.attempt import Attempt
from causerie.routing.execution import Execution

_TENTHS = [f"{tenths // 10}.{tenths % 10}" for tenths in range(1000)]
_NONE = "0.0, route;dur=0.0"
_MAX_CHARACTERS = 2048  # of the header that lists the changes


def head(
    record: Record,
    asked: ChatRequest,
    request: ChatRequest,
    model: Entry,
    execution: Execution,
    attempt: Attempt,
) -> dict[str, str]:
    """All of them, once the first event is there; ``request`` is what the model makes of ``asked``.

    The record notes the first token.
    """
    queue, upstream = attempt.queued_seconds, attempt.upstream_seconds
    route = execution.routed_seconds()
    overhead = record.first_token(queue + route + upstream)
    headers = served(execution)
    waited = (
        f"{_milliseconds(queue)}, route;dur={_milliseconds(route)}" if queue or route else _NONE
    )
    headers["server-timing"] = (
        f"queue;dur={waited}, upstream;dur={_milliseconds(upstream)}, "
        f"overhead;dur={_milliseconds(overhead)}"
    )
    if model.id != request.model:
        headers["x-served-model"] = model.id
    report = attempt.answer.cache_report
    if report is not None and (cache := report(f"{record.door} {record.project or record.key}")):
        headers["x-cache"] = str(cache)
        record.cache_miss = "" if cache.miss is None else str(cache.miss)
    changes = attempt.changes(request, attempt.answer.changes)
    if changes or asked.changes or request is not asked:
        headers |= changed(asked, request, model, changes)
    return headers


def changed(
    asked: ChatRequest, request: ChatRequest, model: Entry, changes: Sequence[str]
) -> dict[str, str]:
    """Report changes to ``asked``: by the parser, by the model, and ``changes`` on the way."""
    if request is not asked:
        changes = [*model.changes(asked), *changes]
    if asked.changes:
        changes = [*asked.changes, *changes]
    return {"x-request-changes": _listed(changes)} if changes else {}


def served(execution: Execution) -> dict[str, str]:
    """Report the target that answers, and the number of targets that were asked."""
    return {"x-served-by": execution.served_by, "x-attempts": str(len(execution.tried))}


def _milliseconds(seconds: float) -> str:
    """Return the time to a tenth; to write a number takes long."""
    tenths = int(seconds * 10_000 + 0.5)
    return _TENTHS[tenths] if 0 <= tenths < len(_TENTHS) else f"{seconds * 1000:.1f}"


def _listed(changes: Sequence[str]) -> str:
    """The changes in one line; of many, the first ones and the number of the others."""
    text = ", ".join(changes)
    if len(text) <= _MAX_CHARACTERS:
        return text
    cut = text[:_MAX_CHARACTERS].rpartition(", ")[0]
    return f"{cut}, and {len(changes) - cut.count(', ') - 1} more changes"
