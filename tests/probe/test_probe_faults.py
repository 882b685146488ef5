"""The probe at the upstream that goes wrong as told: every fault, in every reply."""

from __future__ import annotations

from casekit import each_of
from faultkit import Broken, Fault, upstream

from causerie.probe.interview import (
    Found,
    Interview,
    Patience,
    ProbeBounds,
    ProbeClient,
    supported,
)
from causerie.probe.question import Grade, Subject
from causerie.probe.questions import QUESTIONS

SHORT = ProbeBounds(seconds=0.3, bytes=100_000)
HASTY = Patience(total_seconds=20, busy_seconds=0.01, busy_tries=1)
_GOING_WRONG = [fault for fault in Fault if not fault.complete]


async def asked(fault: Fault) -> dict[str, Found]:
    async with (
        upstream(Broken(fault, pause=0.0002)) as up,
        ProbeClient(up.base_url, None, bounds=SHORT) as asker,
    ):
        interview = Interview(Subject(up.base_url, "m"), asker, HASTY)
        found = {one.id: one async for one in interview.findings(QUESTIONS)}
    assert len(found) == len(QUESTIONS)
    return found


@each_of("fault", _GOING_WRONG, ids=lambda fault: fault.name.lower())
async def test_nothing_is_supported_where_replies_break(fault: Fault) -> None:
    found = await asked(fault)
    plain = {Fault.ERROR_IN_STREAM, Fault.SLOW_HEADERS}  # whole where no stream was asked for
    if fault not in plain:
        assert found["completion"].answer in ("no", "unclear")
        assert supported(found.values()) == ()
    assert not found["stream"].good


@each_of(
    ("fault", "question", "grade", "words"),
    [
        (Fault.TWO_DONE, "stream", "partly", "more after [DONE]"),
        (Fault.NO_DONE, "stream", "partly", "no [DONE]"),
        (Fault.CRLF, "stream", "partly", "CR LF"),
        (Fault.COMMENTS, "stream", "yes", ""),
        (Fault.NO_FINISH, "stream.chunks", "partly", "0 finish reasons"),
        (Fault.USAGE_MISSING, "stream.usage", "no", "no chunk carries usage"),
        (Fault.USAGE_WITH_CHOICES, "stream.usage", "partly", "has choices"),
        (Fault.WRONG_MODEL, "identity", "partly", "not what was asked for"),
        (Fault.WRONG_CONTENT_TYPE, "stream", "no", "text/plain"),
        (Fault.NOT_STREAMED, "stream", "no", "application/json"),
        (Fault.HUGE_CHUNK, "completion", "no", "did not end"),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, Fault) else None,
)
async def test_oddities_are_told(fault: Fault, question: str, grade: Grade, words: str) -> None:
    found = (await asked(fault))[question]
    assert found.answer == grade, found
    assert words in found.how
