"""Response headers of an answer: its target, changes to the request, and times."""

from __future__ import annotations

from collections.abc import Sequence

from causerie.catalog.catalog import Entry
from causerie.metering.meter import Record
from causerie.protocol.request import ChatRequest
from causerie.routing.attempt import Attempt
from causerie.routing.execution import Execution

_TIMING = "queue;dur=%.1f, route;dur=%.1f, upstream;dur=%.1f, overhead;dur=%.1f"  # milliseconds
_TIMING_AT_ONCE = "queue;dur=0.0, route;dur=0.0, upstream;dur=%.1f, overhead;dur=%.1f"
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
    queue, route, upstream = (
        attempt.queued_seconds,
        execution.routed_seconds,
        attempt.upstream_seconds,
    )
    overhead = record.first_token(queue + route + upstream)
    headers = served(execution)
    if queue or route:
        timing = _TIMING % (queue * 1000, route * 1000, upstream * 1000, overhead * 1000)
    else:  # as for most requests: to write a number takes long
        timing = _TIMING_AT_ONCE % (upstream * 1000, overhead * 1000)
    headers["server-timing"] = timing
    if model.id != request.model:
        headers["x-served-model"] = model.id
    report = attempt.answer.cache_report
    if report is not None and (cache := report(f"{record.door} {record.project or record.key}")):
        headers["x-cache"] = str(cache)
        record.cache_miss = "" if cache.miss is None else str(cache.miss)
    changes = attempt.changes(request, attempt.answer.changes)
    if changes or request is not asked:
        headers |= changed(asked, request, model, changes)
    return headers


def changed(
    asked: ChatRequest, request: ChatRequest, model: Entry, changes: Sequence[str]
) -> dict[str, str]:
    """Report changes to ``asked``: those that the model made, and ``changes`` on the way."""
    if request is not asked:
        changes = [*model.changes(asked), *changes]
    return {"x-request-changes": _listed(changes)} if changes else {}


def served(execution: Execution) -> dict[str, str]:
    """Report the target that answers, and the number of targets that were asked."""
    return {"x-served-by": execution.served_by, "x-attempts": str(len(execution.tried))}


def _listed(changes: Sequence[str]) -> str:
    """The changes in one line; of many, the first ones and the number of the others."""
    text = ", ".join(changes)
    if len(text) <= _MAX_CHARACTERS:
        return text
    cut = text[:_MAX_CHARACTERS].rpartition(", ")[0]
    return f"{cut}, and {len(changes) - cut.count(', ') - 1} more changes"
