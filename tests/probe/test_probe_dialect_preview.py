"""Parameters asked for in a server's own terms, where they do nothing by our name."""

from __future__ import annotations

from probekit import BY_ID, MODEL, SUBJECT, Made, answer, body, chunk, stream, usage_chunk

from causerie.probe.interview import DialectPreview, Found, Interview
from causerie.probe.question import ProbeQuestion, ProbeReply, ProbeRequest
from causerie.providers.dialects import DIALECTS

LLAMA = DIALECTS["llama-server"]


def only_streams(ask: ProbeRequest) -> ProbeReply:
    """Knows `repeat_penalty` and no `repetition_penalty`; what it says depends on nothing else."""
    fields = body(ask)
    text = "ha ho" if "repeat_penalty" in fields else "ha ha"
    if fields.get("stream"):
        return stream(chunk(role="assistant"), chunk(content=text), chunk("stop"), usage_chunk())
    return answer(text)


async def verdict(question: ProbeQuestion, made: Made) -> Found:
    interview = Interview(SUBJECT, made, dialect=LLAMA)
    (found,) = [one async for one in interview.findings([question])]
    return found


async def test_a_parameter_of_another_name_is_found() -> None:
    made = Made(only_streams)
    found = await verdict(BY_ID["repetition_penalty"], made)
    assert found.answer == "partly"
    assert found.how.startswith("in the server's own terms: 'ha ha' became 'ha ho'")
    assert [("repeat_penalty" in body(ask)) for ask in made.asked] == [False] * 5 + [True]


async def test_what_holds_by_our_name_is_not_asked_again() -> None:
    made = Made(lambda ask: answer("x" if "repetition_penalty" in body(ask) else "y"))
    assert (await verdict(BY_ID["repetition_penalty"], made)).answer == "yes"
    assert len(made.asked) == 3


async def test_what_the_dialect_refuses_is_never_sent() -> None:
    made = Made(lambda ask: answer("yes", completion=2))
    found = await verdict(BY_ID["min_tokens"], made)
    assert found.answer == "no"
    assert found.how.startswith("accepted, no effect")
    assert sum("min_tokens" in body(ask) for ask in made.asked) == 1


async def test_other_requests_are_sent_as_they_are() -> None:
    made = Made(lambda ask: answer())
    asks = [
        ProbeRequest("GET", "/models"),
        ProbeRequest("POST", "/chat/completions", b"{"),
        SUBJECT.ask("Hi", 4),
    ]
    replies = [await DialectPreview(made, LLAMA).put(ask) for ask in asks]
    assert made.asked[0] is asks[0]
    assert replies[1].status == 400  # that is no request, so nothing could be sent
    assert len(made.asked) == 2
    assert body(made.asked[1])["model"] == MODEL


def test_a_stream_stands_for_its_plain_reply() -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
    rest = {"index": 0, "function": {"arguments": "{}"}}
    pieces = [chunk(role="assistant"), chunk(reasoning_content="hm"), chunk(content="a")]
    pieces += [chunk(tool_calls=[call]), chunk(tool_calls=[rest]), chunk("tool_calls")]
    found = stream(*pieces, usage_chunk(7, 3)).plain().answer()
    assert (found.text, found.reasoning, found.finish) == ("a", "hm", "tool_calls")
    assert (found.prompt, found.completion) == (7, 3)
    assert [(one.id, one.name, one.arguments) for one in found.calls] == [("c", "f", "{}")]
    whole = answer("b")
    assert whole.plain() is whole
    broken = ProbeReply(200, {"content-type": "text/event-stream"}, b"nothing")
    assert broken.plain() is broken
