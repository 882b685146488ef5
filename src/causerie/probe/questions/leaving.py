"""A client that goes away (contract 2): does the work end with it?

Seen on a page of the server that says how much it is doing; where there is
none, in how long the next request takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from dataclasses import replace

from causerie.probe.ask import ProbeRequest
from causerie.probe.question import ProbeQuestion, Script
from causerie.probe.reading import refusal
from causerie.probe.reply import ProbeReply, dig
from causerie.probe.subject import Subject
from causerie.probe.verdict import ProbeVerdict, no, unclear, yes

_LONG = "Count from 1 to 500 in words, one number a line."
_MOST = 600
_LOOKS = 12
_PAUSE = 0.15
_LONGEST_PAUSE = 1.0
_TRIES = 2  # without a page: a machine that stalls once is not taken for a server at work
_GAUGES = re.compile(
    rb"^(?:vllm:num_requests_running|sglang:num_running_reqs|llamacpp:requests_processing)"
    rb"(?:\{[^}]*\})? ([0-9]{1,9})(?![0-9])",
    re.MULTILINE,
)


def _slots(reply: ProbeReply) -> int | None:
    found = reply.document()
    if not isinstance(found, list) or not found:
        return None
    return sum(dig(one, "is_processing") is True for one in found)


def _gauges(reply: ProbeReply) -> int | None:
    found = _GAUGES.findall(reply.body)
    return sum(map(int, found)) if found else None


def _engines(reply: ProbeReply) -> int | None:
    engines = dig(reply.document(), "engines")
    if not isinstance(engines, list):
        return None
    return sum(busy for one in engines if isinstance(busy := dig(one, "busy"), int))


Page = tuple[str, Callable[[ProbeReply], int | None]]
_PAGES: tuple[Page, ...] = (("/health", _engines), ("/slots", _slots), ("/metrics", _gauges))


def _page(path: str) -> ProbeRequest:
    return ProbeRequest("GET", path, at_root=True)


def _found() -> Generator[ProbeRequest, ProbeReply, tuple[Page, int] | None]:
    """Yield the page that tells how much is running, and how much that is now."""
    for page in _PAGES:
        busy = page[1]((yield _page(page[0])))
        if busy is not None:
            return page, busy
    return None


def _stream(subject: Subject) -> Script:
    ask = subject.ask(_LONG, _MOST, stream=True)
    return (yield from _left(subject, replace(ask, leave_at_data=True)))


def _plain(subject: Subject) -> Script:
    ask = subject.ask(_LONG, _MOST)
    return (yield from _left(subject, replace(ask, leave_after=0.5)))


def _left(subject: Subject, ask: ProbeRequest) -> Generator[ProbeRequest, ProbeReply, ProbeVerdict]:
    found = yield from _found()
    if found is None:
        return (yield from _by_time(subject, ask))
    page, before = found
    reply = yield ask
    if reply.ended != "left":
        return unclear(refusal(reply) or "it had ended before we could leave")
    waited = 0.0
    slow = min(max(_PAUSE, reply.seconds / 4), _LONGEST_PAUSE)  # a slow server stops slowly
    for look in range(_LOOKS):
        pause = slow if look else 0.0
        waited += pause
        busy = page[1]((yield replace(_page(page[0]), wait_seconds=pause)))
        if busy is not None and busy <= before:
            return yes(f"{page[0]} shows it free {waited:.2g} s later")
    return no(f"{page[0]} shows it busy {waited:.2g} s later")


def _by_time(
    subject: Subject, ask: ProbeRequest
) -> Generator[ProbeRequest, ProbeReply, ProbeVerdict]:
    alone = yield subject.ask("Say ok.", 4)
    for _ in range(_TRIES):
        left = yield ask
        if left.ended != "left":
            return unclear(refusal(left) or "it had ended before we could leave")
        after = yield subject.ask("Say ok.", 4)
        if after.seconds <= 3 * alone.seconds + 1.0:
            return unclear(
                "no page of the server tells what is running; the next request was not slower"
            )
    return no(f"the next request took {after.seconds:.1f} s instead of {alone.seconds:.1f} s")


QUESTIONS = (
    ProbeQuestion(
        "cancel.stream",
        "contract 2",
        "Does the work end when a stream is left?",
        _stream,
        asks=3 + _LOOKS,
        tokens=60,
    ),
    ProbeQuestion(
        "cancel.plain",
        "contract 2",
        "Does the work end when a plain request is left?",
        _plain,
        asks=3 + _LOOKS,
        tokens=60,
    ),
)
