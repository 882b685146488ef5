"""Each question, by what honest and dishonest providers answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import date

import pytest
from casekit import each_of
from probekit import (
    BY_ID,
    LOUD,
    MODEL,
    SUBJECT,
    Made,
    answer,
    body,
    call,
    chunk,
    document,
    driven,
    interviewed,
    judged,
    learned,
    refused,
    says_yes,
    stream,
    usage,
    usage_chunk,
)

from causerie.probe.interview import entry, supported
from causerie.probe.question import Grade, ProbeReply, ProbeRequest, Subject
from causerie.probe.questions import QUESTIONS
from causerie.protocol.parameters import HONOURED

YES: Grade = "yes"
PARTLY: Grade = "partly"
NO: Grade = "no"
UNCLEAR: Grade = "unclear"
COUNTED = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10"
FRUIT = '{"fruit": "kiwi-7", "count": 41}'
WEATHER = call("get_weather", '{"city": "Paris", "unit": "celsius"}')
TOLD = [{"token": "He", "logprob": -0.1, "bytes": [72, 101], "top_logprobs": [{}, {}]}]


def test_every_question_has_an_id_and_a_rule_of_its_own() -> None:
    assert len(BY_ID) == len(QUESTIONS)
    assert all(question.rule and question.words.endswith("?") for question in QUESTIONS)


def test_every_parameter_of_the_contract_is_decided_by_a_question() -> None:
    decided = {name for question in QUESTIONS for name in question.decides}
    assert decided <= HONOURED
    assert HONOURED - decided == {"model", "messages", "session_id"}


def vectors(*found: list[float], **more: object) -> ProbeReply:
    return document({"data": [{"embedding": one} for one in found], **more})


CASES: dict[str, Sequence[tuple[Grade, Subject, Sequence[ProbeReply]]]] = {
    "base": [(YES, SUBJECT, []), (PARTLY, replace(SUBJECT, base_url="http://x/api"), [])],
    "models.parameters": [
        (YES, replace(SUBJECT, entry={"supported_parameters": ["seed"]}), []),
        (NO, SUBJECT, []),
    ],
    "models.open": [
        (YES, LOUD, [document({"data": [{"id": MODEL}]})]),
        (NO, LOUD, [refused(status=401)]),
        (UNCLEAR, SUBJECT, []),
    ],
    "usage": [
        (YES, SUBJECT, [answer()]),
        (
            PARTLY,
            SUBJECT,
            [
                document(
                    {
                        "choices": [{"message": {}}],
                        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
                    }
                )
            ],
        ),
        (NO, SUBJECT, [document({"choices": [{"message": {}}], "usage": {"total_tokens": 9}})]),
    ],
    "identity": [
        (YES, SUBJECT, [answer()]),
        (NO, SUBJECT, [ProbeReply(200, {}, b'{"choices": [{"message": {"content": "x"}}]}')]),
    ],
    "messages.roles": [
        (YES, SUBJECT, [answer()] * 4),
        (PARTLY, SUBJECT, [answer(), refused("no developer"), answer(), answer()]),
        (NO, SUBJECT, [refused()] * 4),
    ],
    "hints": [
        (YES, SUBJECT, [answer()]),
        (PARTLY, SUBJECT, [refused(), *[answer()] * 7, refused()]),
        (NO, SUBJECT, [refused()] * 9),
    ],
    "unknown": [
        (PARTLY, SUBJECT, [answer()]),
        (
            YES,
            SUBJECT,
            [replace(answer(), headers={"x-request-changes": "zz_unknown_field dropped"})],
        ),
    ],
    "documents": [
        (YES, SUBJECT, [answer(prompt=10), answer(prompt=90)]),
        (NO, SUBJECT, [answer(prompt=10), answer(prompt=10)]),
        (NO, SUBJECT, [answer(), refused()]),
    ],
    "images": [
        (YES, SUBJECT, [answer(prompt=10), answer(prompt=90)]),
        (NO, SUBJECT, [answer(prompt=10), answer(prompt=10)]),
        (NO, SUBJECT, [answer(), refused()]),
    ],
    "session_id": [(UNCLEAR, SUBJECT, [answer()]), (NO, SUBJECT, [refused()])],
    "modalities": [(YES, SUBJECT, [answer()]), (NO, SUBJECT, [refused()])],
    "stream": [
        (YES, SUBJECT, [stream(chunk(role="assistant"))]),
        (PARTLY, SUBJECT, [stream(chunk(role="assistant"), done=False)]),
        (
            PARTLY,
            SUBJECT,
            [
                ProbeReply(
                    200,
                    {"content-type": "text/event-stream"},
                    b'event: x\r\ndata: {"choices": []}\r\n\r\ndata: [DONE]\n\n',
                )
            ],
        ),
        (NO, SUBJECT, [answer()]),
        (NO, SUBJECT, [stream({"error": {"message": "broken"}})]),
    ],
    "stream.chunks": [
        (YES, SUBJECT, [stream(chunk(role="assistant"), chunk(content="a"), chunk("stop"))]),
        (PARTLY, SUBJECT, [stream(chunk(content="a"), chunk("stop"), chunk("stop", id="other"))]),
        (NO, SUBJECT, [stream({"choices": []})]),
    ],
    "stream.usage": [
        (YES, SUBJECT, [stream(chunk(content="a"), chunk("stop"), usage_chunk())]),
        (PARTLY, SUBJECT, [stream({**chunk("stop"), "usage": usage(1, 2)})]),
        (PARTLY, SUBJECT, [stream(usage_chunk(), usage_chunk())]),
        (NO, SUBJECT, [stream(chunk(content="a"), chunk("stop"))]),
    ],
    "stream.unasked": [
        (YES, SUBJECT, [stream(chunk("stop"))]),
        (NO, SUBJECT, [stream(chunk("stop"), usage_chunk())]),
    ],
    "stream.same": [
        (
            YES,
            SUBJECT,
            [
                answer("ab", completion=2),
                stream(chunk(content="a"), chunk("stop", content="b"), usage_chunk()),
            ],
        ),
        (
            PARTLY,
            SUBJECT,
            [answer("ab", completion=2), stream(chunk("length", content="ab"), usage_chunk())],
        ),
        (NO, SUBJECT, [answer("ab"), stream(chunk(content="abc")), answer("ab")]),
        (UNCLEAR, SUBJECT, [answer("ab"), stream(chunk(content="abc")), answer("abcd")]),
    ],
    "max_tokens": [
        (YES, SUBJECT, [answer(finish="length", completion=8)]),
        (PARTLY, SUBJECT, [answer(finish="length", completion=30)]),
        (NO, SUBJECT, [answer(completion=120)]),
        (UNCLEAR, SUBJECT, [answer(completion=3)]),
        (NO, SUBJECT, [refused()]),
    ],
    "max_completion_tokens": [(YES, SUBJECT, [answer(finish="length", completion=8)])],
    "limits.both": [(YES, SUBJECT, [refused()]), (NO, SUBJECT, [answer()])],
    "min_tokens": [
        (YES, SUBJECT, [answer(completion=2), answer(completion=41)]),
        (NO, SUBJECT, [answer(completion=2), answer(completion=2)]),
        (UNCLEAR, SUBJECT, [answer(completion=44)]),
        (UNCLEAR, SUBJECT, [document({"choices": [{"message": {"content": "x"}}]})]),
    ],
    "ignore_eos": [
        (YES, SUBJECT, [answer(completion=2), answer(completion=48)]),
        (NO, SUBJECT, [answer(completion=2), answer(completion=2)]),
    ],
    "stop": [
        (YES, SUBJECT, [answer(COUNTED), answer(COUNTED[: len(COUNTED) // 2])]),
        (PARTLY, SUBJECT, [answer(COUNTED), answer(COUNTED[: len(COUNTED) // 2 + 3])]),
        (PARTLY, SUBJECT, [answer(COUNTED), answer("1, 2", finish="length")]),
        (NO, SUBJECT, [answer(COUNTED), answer(COUNTED)]),
        (UNCLEAR, SUBJECT, [answer("1")]),
    ],
    "stop_token_ids": [
        (YES, SUBJECT, [answer("AAAAAA", finish="length"), answer("")]),
        (NO, SUBJECT, [answer("AAAAAA", finish="length"), answer("AAAAAA", finish="length")]),
        (UNCLEAR, SUBJECT, [answer(), answer(), refused()]),
    ],
    "n": [
        (NO, SUBJECT, [answer()]),
        (
            YES,
            SUBJECT,
            [
                document(
                    {
                        "choices": [
                            {"index": 0, "message": {"content": "a"}},
                            {"index": 1, "message": {"content": "b"}},
                        ]
                    }
                )
            ],
        ),
        (
            PARTLY,
            SUBJECT,
            [
                document(
                    {
                        "choices": [
                            {"index": 0, "message": {"content": "a"}},
                            {"index": 0, "message": {"content": "b"}},
                        ]
                    }
                )
            ],
        ),
    ],
    "temperature": [
        (YES, SUBJECT, [answer("a"), answer("a"), answer("b"), answer("c")]),
        (YES, SUBJECT, [answer("x"), answer("a"), answer("a"), answer("b"), answer("c")]),
        (NO, SUBJECT, [answer("a")] * 4),
        (NO, SUBJECT, [answer("a"), answer("b"), answer("c"), answer("d"), answer("e")]),
    ],
    "top_k": [
        (YES, SUBJECT, [answer("a"), answer("a"), answer("b"), answer("c")]),
        (NO, SUBJECT, [answer("a"), answer("b"), answer("c")]),
        (UNCLEAR, SUBJECT, [answer("a")] * 5),
        (NO, SUBJECT, [refused()]),
    ],
    "top_p": [(YES, SUBJECT, [answer("a"), answer("a"), answer("b"), answer("c")])],
    "min_p": [(NO, SUBJECT, [answer("a"), answer("b"), answer("c")])],
    "seed": [
        (YES, SUBJECT, [answer("a"), answer("a"), answer("b")]),
        (NO, SUBJECT, [answer("a"), answer("b"), answer("c")]),
        (UNCLEAR, SUBJECT, [answer("a")] * 4),
    ],
    "frequency_penalty": [
        (YES, SUBJECT, [answer("ha ha"), answer("ha ha"), answer("ha ho")]),
        (NO, SUBJECT, [answer("ha ha")] * 3),
        (UNCLEAR, SUBJECT, [answer("a"), answer("b"), answer("c"), answer("d")]),
    ],
    "presence_penalty": [(NO, SUBJECT, [answer("ha ha")] * 3)],
    "repetition_penalty": [(NO, SUBJECT, [answer("ha"), answer("ha"), refused()])],
    "logit_bias": [
        (YES, SUBJECT, [answer("QQQQ")]),
        (YES, SUBJECT, [answer("Hello"), answer("abab")]),
        (NO, SUBJECT, [answer("Hello")] * 3),
        (NO, SUBJECT, [refused()] * 3),
    ],
    "logprobs": [
        (YES, SUBJECT, [answer("He", logprobs={"content": TOLD})]),
        (PARTLY, SUBJECT, [answer("Hello", logprobs={"content": TOLD})]),
        (NO, SUBJECT, [answer("He")]),
    ],
    "chat_template_kwargs": [
        (YES, LOUD, [answer("42", reasoning="17 + 25"), answer("42")]),
        (NO, LOUD, [answer("42"), answer("42")]),
        (UNCLEAR, replace(SUBJECT, thinking="never"), [answer("42"), answer("42")]),
        (NO, LOUD, [refused()]),
    ],
    "reasoning_effort": [
        (YES, LOUD, [answer("42", reasoning="17 + 25"), answer("42")]),
        (PARTLY, LOUD, [answer("42", reasoning="17 + 25"), refused("it must think")]),
    ],
    "reasoning": [(NO, LOUD, [refused()])],
    "reasoning_content": [
        (YES, LOUD, [answer("42", reasoning="17 + 25")]),
        (PARTLY, LOUD, [answer("<think>17 + 25</think>42")]),
        (NO, LOUD, [answer("42")]),
    ],
    "stream.reasoning": [
        (YES, LOUD, [stream(chunk(reasoning_content="a"), chunk(content="b"))]),
        (NO, LOUD, [stream(chunk(content="b"), chunk(reasoning="a"))]),
        (NO, LOUD, [stream(chunk(content="b"))]),
        (UNCLEAR, LOUD, [stream(chunk(reasoning_content="a"))]),
    ],
    "thinking_token_budget": [
        (YES, LOUD, [answer(reasoning="a b c d e " * 9), answer(reasoning="a b")]),
        (NO, LOUD, [answer(reasoning="a b c d e " * 9), answer(reasoning="a b c d e " * 9)]),
        (UNCLEAR, LOUD, [answer(reasoning="a")]),
    ],
    "include_reasoning": [
        (YES, LOUD, [answer(reasoning="a"), answer()]),
        (NO, LOUD, [answer(reasoning="a"), answer(reasoning="a")]),
    ],
    "reasoning.back": [
        (YES, LOUD, [answer(prompt=10), answer(prompt=40)]),
        (PARTLY, LOUD, [answer(prompt=10), answer(prompt=10)]),
        (NO, LOUD, [answer(prompt=10), refused()]),
    ],
    "tools": [
        (YES, SUBJECT, [answer("", finish="tool_calls", calls=[WEATHER])]),
        (YES, SUBJECT, [answer(), answer("", finish="tool_calls", calls=[WEATHER])]),
        (PARTLY, SUBJECT, [answer("", finish="stop", calls=[WEATHER])]),
        (
            PARTLY,
            SUBJECT,
            [
                answer(
                    "",
                    finish="tool_calls",
                    calls=[call("get_weather", {"city": "P", "unit": "celsius"})],
                )
            ],
        ),
        (NO, SUBJECT, [answer(), answer()]),
        (NO, SUBJECT, [answer(), refused()]),
        (NO, SUBJECT, [refused()]),
    ],
    "tools.exchange": [
        (YES, SUBJECT, [answer("31 degrees")]),
        (PARTLY, SUBJECT, [answer("", finish="tool_calls", calls=[WEATHER])]),
        (NO, SUBJECT, [refused()]),
    ],
    "tools.history": [
        (YES, SUBJECT, [answer()] * 4),
        (PARTLY, SUBJECT, [answer(), answer(), refused(status=500), refused()]),
    ],
    "tool_choice.none": [
        (YES, SUBJECT, [answer("", finish="tool_calls", calls=[WEATHER]), answer()]),
        (NO, SUBJECT, [answer(), answer("", finish="tool_calls", calls=[WEATHER])]),
        (YES, SUBJECT, [answer(prompt=90), answer(prompt=10)]),
        (UNCLEAR, SUBJECT, [answer(prompt=90), answer(prompt=90)]),
    ],
    "parallel_tool_calls": [
        (YES, SUBJECT, [answer(calls=[WEATHER, WEATHER]), answer(calls=[WEATHER])]),
        (NO, SUBJECT, [answer(calls=[WEATHER]), answer(calls=[WEATHER, WEATHER])]),
        (UNCLEAR, SUBJECT, [answer(calls=[WEATHER]), answer(calls=[WEATHER])]),
    ],
    "tool_choice.required": [
        (YES, SUBJECT, [answer("", finish="tool_calls", calls=[WEATHER])]),
        (PARTLY, SUBJECT, [answer("", finish="tool_calls", calls=[call(arguments="{}")])]),
        (NO, SUBJECT, [answer()]),
    ],
    "tool_choice.required.thinking": [
        (YES, LOUD, [answer("", finish="tool_calls", calls=[WEATHER], reasoning="hm")]),
        (PARTLY, LOUD, [answer("", finish="tool_calls", calls=[WEATHER])]),
    ],
    "tool_choice.named": [
        (YES, SUBJECT, [answer("", finish="tool_calls", calls=[call()])]),
        (NO, SUBJECT, [answer("", finish="tool_calls", calls=[WEATHER])]),
    ],
    "tool_choice.named.thinking": [(NO, LOUD, [answer()])],
    "tool_choice.allowed": [
        (YES, SUBJECT, [answer("", finish="tool_calls", calls=[call()])]),
        (NO, SUBJECT, [refused()]),
    ],
    "response_format.object": [
        (YES, SUBJECT, [answer('{"hello": 1}')]),
        (YES, SUBJECT, [answer('{"hello": "the sea', finish="length")]),
        (NO, SUBJECT, [answer("Hello.")]),
        (NO, SUBJECT, [answer("[1]")]),
    ],
    "response_format.schema": [
        (YES, SUBJECT, [answer(FRUIT)]),
        (PARTLY, SUBJECT, [answer(FRUIT, finish="length")]),
        (NO, SUBJECT, [answer('{"fruit": "apple", "count": 41}')]),
        (NO, SUBJECT, [answer("Hello.")]),
    ],
    "response_format.schema.thinking": [
        (YES, LOUD, [answer(FRUIT, reasoning="hm")]),
        (PARTLY, LOUD, [answer(FRUIT)]),
    ],
    "response_format.strict": [
        (YES, SUBJECT, [refused()]),
        (YES, SUBJECT, [answer('{"codes": [7, 8, 9]}')]),
        (NO, SUBJECT, [answer('{"codes": [7, 7, 7]}')]),
        (PARTLY, SUBJECT, [refused(status=500)]),
        (UNCLEAR, SUBJECT, [answer('{"codes": [7', finish="length")]),
    ],
    "structured_outputs.json": [
        (YES, SUBJECT, [answer(FRUIT)]),
        (NO, SUBJECT, [answer()]),
    ],
    "structured_outputs.regex": [
        (YES, SUBJECT, [answer("code-123")]),
        (NO, SUBJECT, [answer("code-12")]),
    ],
    "structured_outputs.choice": [
        (YES, SUBJECT, [answer("zebra-17")]),
        (NO, SUBJECT, [answer()]),
    ],
    "structured_outputs.grammar": [
        (YES, SUBJECT, [answer("code-123")]),
        (YES, SUBJECT, [refused(), answer("code-123")]),
        (NO, SUBJECT, [answer(), answer()]),
    ],
    "errors.json": [
        (YES, SUBJECT, [refused()]),
        (PARTLY, SUBJECT, [refused(status=500)]),
        (PARTLY, SUBJECT, [ProbeReply(400, {}, b'{"error": {"message": "bad"}}')]),
        (NO, SUBJECT, [ProbeReply(500, {}, b"<html>oops</html>")]),
        (NO, SUBJECT, [answer()]),
        (UNCLEAR, SUBJECT, [ProbeReply(trouble="no answer within 60 s", ended="late")]),
    ],
    "errors.missing": [(YES, SUBJECT, [refused()])],
    "errors.model": [(YES, SUBJECT, [refused(status=404)]), (NO, SUBJECT, [answer()])],
    "errors.value": [(YES, SUBJECT, [refused()]), (NO, SUBJECT, [answer()])],
    "errors.param": [
        (YES, SUBJECT, [refused(param="temperature")]),
        (PARTLY, SUBJECT, [refused("temperature must be a number")]),
        (NO, SUBJECT, [refused("bad")]),
        (NO, SUBJECT, [answer()]),
    ],
    "errors.path": [(YES, SUBJECT, [refused(status=404)])],
    "key.none": [
        (YES, LOUD, [replace(refused(status=401), headers={"www-authenticate": "Bearer"})]),
        (PARTLY, LOUD, [refused(status=401)]),
        (PARTLY, LOUD, [answer()]),
        (UNCLEAR, SUBJECT, []),
    ],
    "key.placeholder": [
        (YES, SUBJECT, [answer()]),
        (NO, SUBJECT, [refused(status=401)]),
        (UNCLEAR, LOUD, []),
    ],
    "key.wrong": [(PARTLY, LOUD, [refused(status=403)])],
    "continue_final_message": [
        (YES, SUBJECT, [answer("is.")]),
        (YES, SUBJECT, [answer("echo", prompt=20), answer("echo", prompt=31)]),
        (PARTLY, SUBJECT, [answer("The capital of France is Paris.", completion=3)]),
        (NO, SUBJECT, [answer("Paris.", prompt=20), answer("Paris.", prompt=20)]),
        (NO, SUBJECT, [answer("The capital of France is Paris.", completion=8), refused()]),
        (NO, SUBJECT, [refused()]),
    ],
    "add_generation_prompt": [
        (YES, SUBJECT, [answer(prompt=8), answer(prompt=12)]),
        (NO, SUBJECT, [answer(prompt=12), answer(prompt=12)]),
    ],
    "context.exceeded": [
        (YES, LOUD, [refused("too long", code="context_length_exceeded")]),
        (PARTLY, LOUD, [refused("too long")]),
        (NO, LOUD, [answer(prompt=999)]),
        (UNCLEAR, SUBJECT, []),
        (UNCLEAR, replace(SUBJECT, context_length=1_000_000), []),
    ],
    "embeddings": [
        (YES, SUBJECT, [vectors([0.1], [0.2], usage={"prompt_tokens": 9})]),
        (PARTLY, SUBJECT, [vectors([0.1], [0.2])]),
        (NO, SUBJECT, [vectors([0.1], [0.1])]),
        (NO, SUBJECT, [vectors([0.1])]),
        (NO, SUBJECT, [refused(status=404)]),
    ],
    "rerank": [
        (YES, SUBJECT, [document({"results": [{"index": 1, "relevance_score": 0.9}]})]),
        (PARTLY, SUBJECT, [document({"results": [{"index": 0, "relevance_score": 0.9}]})]),
        (NO, SUBJECT, [document({"results": []})]),
    ],
    "completions": [
        (YES, SUBJECT, [document({"choices": [{"text": " four"}]})]),
        (NO, SUBJECT, [answer()]),
    ],
}
FLAT = [
    pytest.param(id, grade, subject, replies, id=f"{id}-{number}")
    for id, cases in CASES.items()
    for number, (grade, subject, replies) in enumerate(cases)
]


@each_of(("id", "grade", "subject", "replies"), FLAT)
def test_verdict(id: str, grade: Grade, subject: Subject, replies: Sequence[ProbeReply]) -> None:
    verdict = judged(id, *replies, subject=subject)
    assert verdict.grade == grade, verdict
    assert verdict.how or grade == YES


def test_no_question_asks_more_than_it_says() -> None:
    """Nor with thinking on; the bound of the cost rests on it."""
    for id, cases in CASES.items():
        for _, subject, replies in cases:
            _, asked = driven(BY_ID[id], replies, subject)
            assert len(asked) <= BY_ID[id].asks, id


def test_the_first_completion_finds_the_name_of_the_limit() -> None:
    strict = [refused("use max_completion_tokens"), refused("temperature"), refused(), answer()]
    known = learned("completion", *strict)
    assert known.limit == "max_completion_tokens"
    assert known.steady == {}
    assert body(known.ask("Hi", 5))["max_completion_tokens"] == 5
    assert judged("completion", answer()).grade == YES
    assert judged("completion", ProbeReply(200, {}, b"<html>")).grade == NO


@pytest.mark.parametrize(
    ("replies", "grade", "thinking"),
    [
        ([answer("42"), answer(reasoning="a"), answer("42")], YES, "switch"),
        ([answer("42"), *[answer("42")] * 4], UNCLEAR, "never"),
        ([answer(reasoning="a")] * 9, NO, "always"),
        (
            [answer(reasoning="a"), refused(), answer(reasoning="a"), answer("42")],
            PARTLY,
            "switch",
        ),
    ],
)
def test_the_switch_of_thinking(replies: list[ProbeReply], grade: Grade, thinking: str) -> None:
    assert judged("thinking", *replies).grade == grade
    known = learned("thinking", *replies)
    assert known.thinking == thinking
    assert (known.room > 0) == (thinking == "always")


def test_models_tell_their_context() -> None:
    entry = {"id": MODEL, "max_model_len": 4096}
    assert learned("models", document({"data": [entry]})).context_length == 4096
    assert judged("models", document({"data": [{"id": "other"}]})).grade == PARTLY
    assert judged("models", document([])).grade == NO


def test_the_context_is_looked_for_where_servers_tell_it() -> None:
    nowhere = document({"data": []})
    slots = document({"default_generation_settings": {"n_ctx": 512}})
    told = refused("This model's maximum context length is 32,768 tokens.")
    ours = refused("too long", metadata={"context_length": 2048})
    assert learned("context_length", nowhere, slots).context_length == 512
    assert learned("context_length", nowhere, nowhere, told).context_length == 32768
    assert learned("context_length", nowhere, nowhere, ours).context_length == 2048
    assert judged("context_length", nowhere, nowhere, answer()).grade == UNCLEAR


def test_continuing_is_looked_for_in_three_ways() -> None:
    anew, on = stream(chunk(content="Paris")), stream(chunk(content="is."))
    closed = [answer(prompt=20), answer(prompt=20)]
    assert learned("continues", on).continues is True
    assert learned("continues", anew, on).continues is True
    assert learned("continues", refused(), refused(), on).continues is True
    assert learned("continues", anew, anew, anew, *closed).continues is False


def test_a_call_in_a_stream_begins_with_empty_arguments() -> None:
    function = {"name": "get_weather", "arguments": ""}
    first = {"index": 0, "id": "c", "type": "function", "function": function}
    arguments = {"arguments": '{"city": "P", "unit": "kelvin"}'}
    rest = {"index": 0, "function": arguments}
    good = stream(chunk(tool_calls=[first]), chunk(tool_calls=[rest]), chunk("tool_calls"))
    assert judged("tools.stream", good).grade == YES
    whole = {**first, "function": {"name": "get_weather", **arguments}}
    at_once = stream(chunk(tool_calls=[whole]), chunk("tool_calls"))
    assert judged("tools.stream", at_once).grade == PARTLY
    assert judged("tools.stream", stream(chunk("stop"))).grade == NO


def test_leaving_is_seen_on_a_page_of_the_server() -> None:
    none, slots = refused(status=404), [{"is_processing": False}]
    idle, busy = document(slots), document([{"is_processing": True}])
    left = replace(stream(chunk(content="One")), ended="left")
    assert judged("cancel.stream", none, idle, left, busy, idle).grade == YES
    assert judged("cancel.stream", none, idle, left, *[busy] * 12).grade == NO
    gauge = ProbeReply(200, {}, b'vllm:num_requests_running{model="m"} 0.0\n')
    assert judged("cancel.stream", none, none, gauge, left, gauge).grade == YES
    assert judged("cancel.plain", none, idle, answer()).grade == UNCLEAR


@each_of("number", [b"1.2.3", b"1e+", b"1e999", b"..", b"9" * 40])
async def test_a_gauge_may_hold_any_number(number: bytes) -> None:
    page = ProbeReply(200, {}, b"vllm:num_requests_running " + number)
    asked = [BY_ID["cancel.stream"]]
    _, found = await interviewed(Made(lambda ask: page if ask.at_root else answer()), asked)
    assert found["cancel.stream"].answer == UNCLEAR


@pytest.mark.parametrize("odd", [[], {}, 0.5, None])
async def test_members_of_a_call_may_be_of_any_type(odd: object) -> None:
    function = {"name": odd, "arguments": "{}"}
    plain = answer(calls=[{"id": odd, "type": odd, "function": function}])
    pieces = [{"index": odd, "id": odd, "function": function}] * 2
    streams = stream(chunk(tool_calls=pieces), chunk("tool_calls"))
    made = Made(lambda ask: streams if b'"stream":true' in ask.body else plain)
    _, found = await interviewed(made, subject=LOUD)
    for id in ("tools", "tools.stream", "tool_choice.named"):
        assert found[id].answer != YES


async def test_json_may_be_nested_beyond_every_measure() -> None:
    deep = "[" * 20_000
    made = Made(lambda ask: answer(deep, calls=[call(arguments=deep)]))
    _, found = await interviewed(made, subject=LOUD)
    assert found["tool_choice.required"].answer != YES
    assert not found["response_format.schema"].good


def test_leaving_is_seen_in_the_next_request_where_there_is_no_page() -> None:
    none, left = refused(status=404), ProbeReply(ended="left")
    quick, slow = replace(answer(), seconds=0.1), replace(answer(), seconds=9.0)
    pages = [none, none, none]
    assert judged("cancel.plain", *pages, quick, left, slow, left, slow).grade == NO
    assert judged("cancel.plain", *pages, quick, left, slow, left, quick).grade == UNCLEAR
    assert judged("cancel.plain", *pages, quick, left, quick).grade == UNCLEAR


async def test_a_server_that_says_yes_to_everything_is_believed_in_nothing() -> None:
    interview, found = await interviewed(Made(says_yes))
    assert set(supported(found.values())) == {"stream", "stream_options", "modalities"}
    assert interview.subject.continues is False
    assert interview.subject.thinking == "never"
    assert found["completion"].answer == YES


async def test_what_is_claimed_and_not_done_is_told() -> None:
    def claims(ask: ProbeRequest) -> ProbeReply:
        listed = {"id": MODEL, "supported_parameters": ["stop", "stream", "seed", "teleport", 3]}
        return document({"data": [listed]}) if ask.method == "GET" else says_yes(ask)

    interview, found = await interviewed(Made(claims))
    made = entry(interview.subject, list(found.values()), date(2026, 11, 21))
    assert made.overclaimed == ("stop",)  # whether `seed` does anything stayed unclear
    assert made.values()["probed"] == "2026-11-21"
    assert "not honoured: " in made.evidence


@each_of(
    "reply",
    [
        ProbeReply(200, {"content-type": "text/html"}, b"<html><body>Welcome</body></html>"),
        ProbeReply(
            200, {"content-type": "application/json"}, b'{"choices": 3, "usage": [], "data": 1}'
        ),
        ProbeReply(
            200, {"content-type": "application/json"}, b'{"choices": [null, {"message": 1}]}'
        ),
        ProbeReply(200, {"content-type": "text/event-stream"}, b"data: \xff\xfe\n\ndata: {}\n\n"),
        ProbeReply(200, {}, b"\x00" * 5000),
        ProbeReply(204),
        ProbeReply(302, {}, b""),
        ProbeReply(500, {}, b"Traceback (most recent call last):"),
        ProbeReply(401, {}, b'{"error": "no key"}'),
        ProbeReply(ended="late", trouble="no answer within 1 s"),
        ProbeReply(ended="broken", trouble="the connection broke"),
        ProbeReply(200, {}, b"x" * 2000, ended="large", trouble="did not end"),
    ],
    ids=lambda reply: f"{reply.status}-{reply.ended}-{re.sub(r'[^a-z]', '', str(reply.body))[:9]}",
)
async def test_nonsense_is_never_a_yes_and_never_a_failure(reply: ProbeReply) -> None:
    asked = [replace(question, alone=True) for question in QUESTIONS]
    _, found = await interviewed(Made(lambda ask: reply), asked, LOUD)
    assert len(found) == len(QUESTIONS)
    assert supported(found.values()) == ()
    for finding in found.values():
        if finding.id not in ("base", "messages.roles") and not reply.status:
            assert finding.answer in (NO, UNCLEAR), finding
