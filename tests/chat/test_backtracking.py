"""What repeats an earlier item is taken back before anybody has it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest
from casekit import each_of, examples
from chatkit import Reply, Unchecked, continued, together, whole_and_cuts
from grammarkit import fault_in
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from causerie.chat import validation
from causerie.chat.backtracking import Backtracking
from causerie.chat.chat import TextChat
from causerie.chat.document_watch import WatchedDocuments
from causerie.chat.formats.registry import by_name
from causerie.chat.parser import Parser
from causerie.chat.schema.certain import CHECKED as MARK
from causerie.chat.schema.normal import Rewriter
from causerie.chat.validation import CheckedSchema
from causerie.engines.base import ModelFacts, Output, Stopped, TextRequest, Token
from causerie.engines.registry import FakeEngine, FakeScript
from causerie.errors import ConstraintNotKept
from causerie.protocol.events import Batch, Finished, TextDelta, Usage
from causerie.protocol.parameters import SamplingParams
from causerie.protocol.request import ChatRequest, JsonSchema, Message, Tool, ToolChoice
from causerie.protocol.response import CompletionIdentity, ResponseContext
from causerie.shapes.chat_completions.encoder import ChunkEncoder, completion

MOST_READ_AGAIN = 200  # tokens, for one draw
NUMBERS = [part for at in range(1_000, 4_000) for part in (str(at), ",")]
COLORS = {"enum": ["red", "green", "grey", "blue"]}


def unique(items: dict[str, Any], **more: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"a": {"type": "array", "items": items, "uniqueItems": True, **more}},
        "required": ["a"],
        "additionalProperties": False,
    }


SCHEMAS = [
    unique({"type": "string"}),
    unique({"type": "string"}, minItems=3),
    unique(COLORS, minItems=3),
    unique({"type": "integer"}, minItems=2, maxItems=4),
    unique({"type": "boolean"}, minItems=2),
    unique({"type": "array", "items": COLORS, "uniqueItems": True}, minItems=3),
]
REPLIES = [
    {"a": ["red", "green", "red", "blue"]},
    {"a": ["red", "red", "red"]},
    {"a": ["", "", ""]},
    {"a": [1, 2, 1, 1]},
    {"a": [True, True]},
    {"a": [["red"], ["red"], ["red", "red"]]},
    {"a": [[], [], []]},
]


def of(**properties: dict[str, Any]) -> dict[str, Any]:
    required = list(properties)
    return {"type": "object", "properties": properties, "required": required}


DIGITS = {"type": "integer", "minimum": 0, "maximum": 9}
CHECKED: dict[str, tuple[dict[str, Any], object]] = {
    "not": (of(a={"type": "string", "not": {"pattern": "^foo"}}), {"a": "foobar"}),
    "maxContains": (
        of(a={"type": "array", "items": DIGITS, "contains": {"const": 1}, "maxContains": 1}),
        {"a": [1, 1, 2]},
    ),
    "contains": (
        of(a={"type": "array", "items": DIGITS, "prefixItems": [{}], "contains": {"const": 0}}),
        {"a": [4, 4]},
    ),
    "minProperties": ({"additionalProperties": DIGITS, "type": "object", "minProperties": 2,
                       "properties": {"a": DIGITS}}, {"a": 1}),
    "propertyNames": ({"type": "object", "properties": {"a": DIGITS}, "required": ["a"],
                       "additionalProperties": DIGITS, "propertyNames": {"pattern": "^[^l]"}},
                      {"a": 1, "long": 2}),
    "oneOf": (of(a={"oneOf": [{"type": "string", "pattern": "^a"},
                              {"type": "string", "pattern": "b$"}]}), {"a": "ab"}),
    "if": ({**of(k={"type": "string"}, n=DIGITS), "if": {"properties": {"k": {"pattern": "^x"}}},
            "then": {"properties": {"n": {"minimum": 2}}}}, {"k": "xy", "n": 1}),
    "unevaluatedProperties": ({"type": "object", "properties": {"a": DIGITS}, "required": ["a"],
                               "anyOf": [{"properties": {"b": {"const": 1}}, "required": ["b"]},
                                         {"properties": {"c": {"const": 2}}}],
                               "unevaluatedProperties": False}, {"a": 1, "b": 3}),
}  # fmt: skip


def asked(schema: dict[str, Any], *, call: bool = False, **more: Any) -> ChatRequest:
    if call:
        more |= {"tools": (Tool("f", schema),), "tool_choice": ToolChoice("required")}
        more["parallel_tool_calls"] = False
    else:
        more["output"] = JsonSchema(schema)
    return ChatRequest("m", (Message("user", "Write."),), max_tokens=400, **more)


def chat_of(reply: object, *, call: bool = False, indent: int | None = None) -> TextChat:
    text = json.dumps(reply, indent=indent)
    if call:
        text = f'<tool_call>\n{{"name": "f", "arguments": {text}}}\n</tool_call>'
    return TextChat(FakeEngine("m", FakeScript([text])), Unchecked())


async def reply_to(chat: TextChat, request: ChatRequest) -> Reply:
    async with chat.generate(request) as answer:
        return together([batch async for batch in answer.events])


@settings(max_examples=examples(10), deadline=None)
@given(
    st.sampled_from(SCHEMAS),
    st.sampled_from(REPLIES),
    st.booleans(),
    st.sampled_from([None, 2]),
)
async def test_every_reply_is_valid(
    schema: dict[str, Any], reply: object, call: bool, indent: int | None
) -> None:
    chat = chat_of(reply, call=call, indent=indent)
    whole = await reply_to(chat, asked(schema, call=call))
    text = whole.calls[0].arguments if call else whole.text
    assert fault_in(text, Rewriter(schema, "schema").rewrite()) is None
    assert whole.finish == ("tool_calls" if call else "stop")
    assert len(whole.calls) == call


@each_of(("name", "call"), [*((name, False) for name in CHECKED), ("contains", True), ("if", True)])
async def test_a_value_that_breaks_a_rule_is_written_anew(name: str, call: bool) -> None:
    schema, reply = CHECKED[name]
    assert fault_in(json.dumps(reply), Rewriter(schema, "schema").rewrite()) is not None
    whole = await reply_to(chat_of(reply, call=call), asked(schema, call=call))
    text = whole.calls[0].arguments if call else whole.text
    assert fault_in(text, Rewriter(schema, "schema").rewrite()) is None
    assert whole.finish == ("tool_calls" if call else "stop")


async def test_a_value_that_nothing_can_mend_ends_the_answer_with_an_error() -> None:
    schema = of(a={"type": "string", "minLength": 1, "not": {"pattern": "."}})
    batches: list[Batch] = []
    with pytest.raises(ConstraintNotKept, match="what `not` excludes"):
        async with chat_of({"a": "b"}).generate(asked(schema)) as answer:
            async for batch in answer.events:
                batches.append(batch)
    assert together(batches).text in ('{"a": ', '{"a":')


async def test_the_array_ends_before_an_item_that_repeats_where_it_may() -> None:
    whole = await reply_to(chat_of(REPLIES[0]), asked(SCHEMAS[0]))
    assert whole.text == '{"a": ["red", "green"]}'


async def test_another_item_is_drawn_where_the_array_may_not_end() -> None:
    whole = await reply_to(chat_of(REPLIES[1]), asked(SCHEMAS[2]))
    items = json.loads(whole.text)["a"]
    assert len(items) == len(set(items)) == 3


async def test_tokens_that_are_taken_back_are_not_counted() -> None:
    engine = FakeEngine("m", FakeScript([json.dumps(REPLIES[1])]))
    request = asked(SCHEMAS[2])
    whole = await reply_to(TextChat(engine, Unchecked()), request)
    assert whole.usage is not None
    assert whole.usage.completion == len(whole.text) + 1  # a byte each, and the end
    assert len(engine.requests) > 1
    prompt = len(engine.requests[0].prompt)
    assert all(len(made.prompt) + made.max_tokens <= prompt + 400 for made in engine.requests)


def test_tokens_are_held_from_the_comma_to_the_end_of_the_item() -> None:
    documents = WatchedDocuments(
        Parser(by_name("qwen-3"), tools=None, reasoning_open=False, call_id=lambda name, id: id),
        CheckedSchema(Rewriter(SCHEMAS[0], "schema").rewrite()),
        {},
    )
    final = []
    for token in ['{"a":', ' ["', "red", '","', "gr", "een", '",', " ", '"b', '"]', "}"]:
        documents.feed(token)
        final.append(documents.final)
    assert final == [1, 2, 3, 3, 3, 3, 6, 6, 6, 10, 11]


async def test_log_probabilities_are_those_of_the_text_that_is_sent() -> None:
    whole = await reply_to(chat_of(REPLIES[1]), asked(SCHEMAS[2], top_logprobs=1))
    assert "".join(one.text for one in whole.logprobs) == whole.text


async def test_a_stop_string_ends_the_reply_inside_held_text() -> None:
    chat = chat_of({"a": ["red", "green", "blue"]})
    whole = await reply_to(chat, asked(SCHEMAS[0], stop=("een",)))
    assert (whole.text, whole.finish) == ('{"a": ["red", "gr', "stop")
    assert whole.usage is not None
    assert whole.usage.completion == len('{"a": ["red", "green')


async def test_the_limit_cuts_inside_held_text() -> None:
    request = structs.replace(asked(SCHEMAS[0]), max_tokens=17)
    whole = await reply_to(chat_of({"a": ["red", "green"]}), request)
    assert (whole.text, whole.finish) == ('{"a": ["red", "gr', "length")
    assert whole.usage is not None
    assert whole.usage.completion == 17


async def test_an_answer_that_cannot_be_completed_ends_with_an_error() -> None:
    """Of two texts there are no three; nothing that breaks the rule has been sent."""
    chat = chat_of({"a": ["a", "a", "a"]})
    texts = {"type": "string", "pattern": "^a?$"}
    batches: list[Batch] = []
    with pytest.raises(ConstraintNotKept, match="items at #/a have to differ"):
        async with chat.generate(asked(unique(texts, minItems=3))) as answer:
            async for batch in answer.events:
                batches.append(batch)
    items = json.loads(together(batches).text + "]}")["a"]
    assert sorted(items) == ["", "a"]


async def test_a_continued_answer_counts_the_items_that_it_has() -> None:
    begun = Message("assistant", '{"a": ["red", "green"')
    request = asked(SCHEMAS[0], continue_final_message=True, add_generation_prompt=False)
    request = structs.replace(request, messages=(*request.messages, begun))
    chat = chat_of({"a": ["red", "green", "red"]})
    whole = await reply_to(chat, request)
    document = json.loads('{"a": ["red", "green"' + whole.text)
    assert len(document["a"]) == len(set(document["a"]))


async def test_another_target_goes_on_without_repeating_what_was_sent() -> None:
    one, other = chat_of(REPLIES[0]), chat_of(REPLIES[0])
    request = asked(SCHEMAS[0], sampling=SamplingParams(temperature=0))
    whole, cuts = await whole_and_cuts(one, request)
    for cut in cuts:
        assert (await continued(other, request, cut)).text == whole.text


class Drawing:
    """An engine that writes these runs, one after the other."""

    def __init__(self, *runs: Sequence[str]) -> None:
        self.runs = list(runs)
        self.requests: list[TextRequest] = []

    async def facts(self) -> ModelFacts:
        raise AssertionError("Nobody asks for facts.")

    async def tokenize(self, pieces: Sequence[str | int], *, special: bool) -> list[int]:
        return [number(str(piece)) for piece in pieces]

    async def texts(self, tokens: Sequence[int], *, visible: Sequence[str] = ()) -> list[str]:
        raise AssertionError("Nobody asks for texts.")

    @asynccontextmanager
    async def generate(self, request: TextRequest) -> AsyncIterator[AsyncIterator[Output]]:
        self.requests.append(request)
        yield self._run(self.runs.pop(0), request)

    async def _run(self, run: Sequence[str], request: TextRequest) -> AsyncIterator[Output]:
        for text in run:
            yield Token(number(text), text)
        yield Stopped("stop", len(request.prompt), len(run))


def number(text: str) -> int:
    """Return the id of a token."""
    return int.from_bytes(text.encode())


async def test_white_space_is_no_other_item() -> None:
    """A blank in place of the repeated item would only put the same item off."""
    engine = Drawing(["[", "true", ",", "true", "]"], [","], [" "], ["false"], ["]"])
    rules = CheckedSchema({"type": "array", "uniqueItems": True})
    request = TextRequest((1,), 20, SamplingParams(seed=7), grammar="g", accepted=(9,))

    form = by_name("qwen-3")
    parser = Parser(form, tools=None, reasoning_open=False, call_id=lambda name, id: id)
    documents, discarded = WatchedDocuments(parser, rules, {}), list[int]()

    backtracking = Backtracking(engine, request, documents, discarded.append)
    async with aclosing(backtracking.outputs()) as outputs:
        made = [output async for output in outputs]
    assert [one.text for one in made if isinstance(one, Token)] == ["[", "true", ",", "false", "]"]
    assert made[-1] == Stopped("stop", 1, 5)
    assert sum(discarded) == 4  # a comma and an item that repeats, a comma, a blank
    bias = [asked.sampling.logit_bias for asked in engine.requests]
    true, blank = number("true"), number(" ")
    assert bias == [{}, {number("]"): 100}, {true: -100}, {true: -100, blank: -100}, {}]
    assert [len(asked.accepted) for asked in engine.requests] == [1, 3, 4, 4, 5]
    assert [asked.max_tokens for asked in engine.requests] == [20, 1, 1, 1, 16]
    assert len({asked.sampling.seed for asked in engine.requests}) > 2


def _parser() -> Parser:
    form = by_name("qwen-3")
    return Parser(form, tools=None, reasoning_open=False, call_id=lambda name, id: id)


@pytest.mark.parametrize(
    ("rules", "run"),
    [
        # The array has been handed on but for its last item; it may not end.
        ({"type": "array", "uniqueItems": True, "minItems": 9_999},
         ["[", "7", ",", "8", ",", "9", ",", *NUMBERS, "7", "]"]),
        # The whole document is held until it is complete.
        ({"type": "array", "minItems": 9_999, MARK: True},
         ["[", *NUMBERS, "7", "]"]),
        ({"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"minItems": 9_999, MARK: True,
                                                          "items": {"$ref": "#/$defs/a"}}}},
         [*["["] * 100, *[part for _ in range(2_000) for part in ("7", ",")], "7", "]"]),
    ],
    ids=["items", "whole", "deep"],
)  # fmt: skip
async def test_little_is_read_again_where_something_is_taken_back(
    rules: dict[str, Any], run: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without copies of its state, the reader would begin anew at each of the 128 draws."""
    read = 0
    feed = WatchedDocuments.feed

    def counted(documents: WatchedDocuments, text: str) -> None:
        nonlocal read
        read += 1
        feed(documents, text)

    monkeypatch.setattr(WatchedDocuments, "feed", counted)
    engine = Stubborn(run)
    request = TextRequest((1,), 20_000, SamplingParams(seed=7), grammar="g")
    discarded = list[int]()
    documents = WatchedDocuments(_parser(), CheckedSchema(rules), {})
    backtracking = Backtracking(engine, request, documents, discarded.append)
    async with aclosing(backtracking.outputs()) as outputs:
        with suppress(ConstraintNotKept):
            async for _ in outputs:
                pass
    assert engine.draws > 3
    assert read <= len(run) + engine.draws * MOST_READ_AGAIN
    assert sum(discarded) > 0


class Stubborn(Drawing):
    """An engine that writes one run, and then the same token however often it is asked."""

    def __init__(self, run: Sequence[str]) -> None:
        super().__init__(run)
        self.draws = 0
        self.ending = ["]"] * run.count("[")

    @asynccontextmanager
    async def generate(self, request: TextRequest) -> AsyncIterator[AsyncIterator[Output]]:
        if self.runs:
            yield self._run(self.runs.pop(), request)
            return
        if request.max_tokens > 1:
            yield self._run(self.ending, request)
            return
        self.draws += 1
        others = (
            text for text in ("7", "8", "9") if number(text) not in request.sampling.logit_bias
        )
        yield self._run([next(others, "7")], request)


@pytest.mark.parametrize("call", [False, True])
async def test_a_document_that_takes_too_much_work_to_check_is_delivered_and_marked(
    call: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "AT_ONCE", 1)
    monkeypatch.setattr(validation, "MOST_STEPS", 10)
    document = {"a": list(range(10))}
    schema = of(a={"type": "array", "items": {"type": "integer"}})
    batches: list[Batch] = []
    async with chat_of(document, call=call).generate(asked(schema, call=call)) as answer:
        async for batch in answer.events:
            batches.append(batch)
    ends = [event for batch in batches for event in batch if isinstance(event, Finished)]
    assert ends == [Finished("tool_calls" if call else "stop", verified=False)]
    whole = together(batches)
    assert json.loads(whole.calls[0].arguments if call else whole.text) == document


@pytest.mark.parametrize("verified", [True, False])
def test_the_end_of_a_choice_says_whether_its_form_was_checked(verified: bool) -> None:
    context = ResponseContext(CompletionIdentity("c", 1, "r"), "m", "f")
    batch = [TextDelta("1"), Finished("stop", verified=verified), Usage(1, 1)]
    plain = json.loads(msgspec.json.encode(completion(context, batch)))["choices"][0]
    chunks = ChunkEncoder(context).feed(batch).decode().split("\n\n")
    ends = [chunk for chunk in chunks if '"finish_reason":"stop"' in chunk]
    streamed = json.loads(ends[0].removeprefix("data: "))["choices"][0]
    assert len(ends) == 1
    for choice in (plain, streamed):
        assert choice.get("verified", True) is verified
        assert ("verified" in choice) is not verified


async def test_tokens_that_are_taken_back_are_counted_apart() -> None:
    engine = Counting("m", FakeScript([json.dumps(REPLIES[1])]))
    engine.tokens = []
    chat = TextChat(engine, Unchecked())
    async with chat.generate(asked(SCHEMAS[2])) as answer:
        whole = together([batch async for batch in answer.events])
        assert whole.usage == answer.usage()
    assert whole.usage is not None
    made = whole.usage.completion + whole.usage.discarded
    assert whole.usage.discarded > 0
    assert made == len(engine.tokens)


class Counting(FakeEngine):
    """The engine, which keeps the tokens that it has generated."""

    tokens: list[Token]

    @asynccontextmanager
    async def generate(self, request: TextRequest) -> AsyncIterator[AsyncIterator[Output]]:
        async with super().generate(request) as outputs:
            yield self._kept(outputs)

    async def _kept(self, outputs: AsyncIterator[Output]) -> AsyncIterator[Output]:
        async for output in outputs:
            if isinstance(output, Token):
                self.tokens.append(output)
            yield output


@each_of("schema", ["oneOf", "not", "anything"])
async def test_a_number_that_is_the_whole_answer_is_checked_at_its_end(schema: str) -> None:
    """No character follows it, so that nothing but the end of the text says that it is complete."""
    rules: dict[str, Any] = {
        "oneOf": {**DIGITS, "oneOf": [{"minimum": 4}, {"maximum": 6}]},
        "not": {**DIGITS, "not": {"anyOf": [{"const": 5}, {"multipleOf": 5}]}},
        "anything": {"oneOf": [{"not": {"const": f"{at}"}} for at in range(9)]},
    }[schema]
    request, chat = asked(rules), chat_of(5)
    if schema == "anything":
        with pytest.raises(ConstraintNotKept):
            await reply_to(chat, request)
        return
    reply = await reply_to(chat, request)
    assert reply.finish == "stop"
    assert fault_in(reply.text, rules) is None
