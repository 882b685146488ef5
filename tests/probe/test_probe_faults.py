"""The probe at the upstream that goes wrong as told: every fault, in every reply."""

from __future__ import annotations

from casekit import each_of
from faultkit import Broken, Fault, upstream

from causerie.probe.interview import (
    Finding,
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


async def asked(fault: Fault) -> dict[str, Finding]:
    async with (
        upstream(Broken(fault, pause=0.0002)) as up,
        ProbeClient(up.base_url, None, bounds=SHORT) as asker,
    ):
        interview = Interview(Subject(up.base_url, "m"), asker, HASTY)
        found = {one.question.id: one async for one in interview.findings(QUESTIONS)}
    assert len(found) == len(QUESTIONS)
    return found


@each_of("fault", _GOING_WRONG, ids=lambda fault: fault.name.lower())
async def test_nothing_is_supported_where_replies_break(fault: Fault) -> None:
    found = await asked(fault)
    plain = {Fault.ERROR_IN_STREAM, Fault.SLOW_HEADERS}  # whole where no stream was asked for
    if fault not in plain:
        assert found["completion"].verdict.grade in (Grade.NO, Grade.UNCLEAR)
        assert supported(found.values()) == ()
    assert not found["stream"].verdict.good


@each_of(
    ("fault", "question", "grade", "words"),
    [
        (Fault.TWO_DONE, "stream", Grade.PARTLY, "more after [DONE]"),
        (Fault.NO_DONE, "stream", Grade.PARTLY, "no [DONE]"),
        (Fault.CRLF, "stream", Grade.PARTLY, "CR LF"),
        (Fault.COMMENTS, "stream", Grade.YES, ""),
        (Fault.NO_FINISH, "stream.chunks", Grade.PARTLY, "0 finish reasons"),
        (Fault.USAGE_MISSING, "stream.usage", Grade.NO, "no chunk carries usage"),
        (Fault.USAGE_WITH_CHOICES, "stream.usage", Grade.PARTLY, "has choices"),
        (Fault.WRONG_MODEL, "identity", Grade.PARTLY, "not what was asked for"),
        (Fault.WRONG_CONTENT_TYPE, "stream", Grade.NO, "text/plain"),
        (Fault.NOT_STREAMED, "stream", Grade.NO, "application/json"),
        (Fault.HUGE_CHUNK, "completion", Grade.NO, "did not end"),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, Fault) else None,
)
async def test_oddities_are_told(fault: Fault, question: str, grade: Grade, words: str) -> None:
    verdict = (await asked(fault))[question].verdict
    assert verdict.grade is grade, verdict
    assert words in verdict.how
