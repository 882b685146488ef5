"""Writes replies as a format declares them, and reads them back through the parser."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from grammarkit import fault_in

from causerie.chat.call_syntax.relaxed import loose_text
from causerie.chat.formats.format import (
    CallId,
    CallSection,
    ElementArguments,
    JsonArguments,
    Literal,
    LooseArguments,
    ModelFormat,
    Name,
    ParameterList,
    PythonArguments,
    Reasoning,
    Segment,
)
from causerie.chat.parser import Parser, ReasoningEnd
from causerie.chat.schema.normal import Rewriter
from causerie.protocol.events import ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStarted

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "hot": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["city"],
    "additionalProperties": False,
}
TIME = {
    "type": "object",
    "properties": {"zone": {"type": "string"}},
    "additionalProperties": False,
}
NOW = {"type": "object", "properties": {}, "additionalProperties": False}
TOOLS: Mapping[str, Mapping[str, object]] = {"get_weather": WEATHER, "time": TIME, "now": NOW}


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: Mapping[str, object]
    id: str = "abcdefgh1"


@dataclass(slots=True)
class Told:
    """A parsed reply; ``calls`` are names and parsed arguments."""

    reasoning: str = ""
    answer: str = ""
    calls: list[tuple[str, object]] = field(default_factory=list)
    open: bool = False


def read(
    form: ModelFormat,
    text: str,
    *,
    size: int = 0,
    cuts: Sequence[int] = (),
    reasoning_open: bool = False,
    tools: Mapping[str, Mapping[str, object]] | None = TOOLS,
    reasoning_end: ReasoningEnd = ReasoningEnd.ANY_MARKER,
) -> Told:
    """The reply, fed in pieces of ``size`` characters, or cut at ``cuts``, or whole."""
    parser = Parser(
        form,
        tools=tools,
        reasoning_open=reasoning_open,
        call_id=lambda name, given: given or name,
        reasoning_end=reasoning_end,
    )
    parser.read_unmarked(admits)
    told = Told()
    texts: list[str] = []
    events = []
    for piece in pieces(text, size, cuts):
        events += parser.feed(piece)
    events += [*parser.end(), *parser.finish()]
    for event in events:
        match event:
            case ReasoningDelta(said):
                told.reasoning += said
            case TextDelta(said):
                told.answer += said
            case ToolCallStarted(index, _, name):
                assert index == len(texts)
                texts.append("")
                told.calls.append((name, None))
            case ToolCallDelta(index, arguments):
                texts[index] += arguments
    told.open = parser.call_open
    whole = len(texts) - 1 if told.open else len(texts)
    told.calls = [
        (name, json.loads(texts[at]) if at < whole else texts[at])
        for at, (name, _) in enumerate(told.calls)
    ]
    return told


def admits(name: str, arguments: str) -> bool:
    schema = Rewriter(TOOLS[name], "tools").rewrite()
    return fault_in(arguments, schema) is None


def pieces(text: str, size: int, cuts: Sequence[int] = ()) -> list[str]:
    if cuts:
        edges = [0, *sorted({min(cut, len(text)) for cut in cuts}), len(text)]
        return [text[a:b] for a, b in pairwise(edges) if a < b]
    step = size or len(text) or 1
    return [text[at : at + step] for at in range(0, len(text), step)]


def write_said(form: ModelFormat, said: str) -> str:
    """A text before calls."""
    opened, closed = form.said_open or form.answer_open, form.said_close or form.answer_close
    return opened + said + closed


def write_reasoning(marks: Reasoning, thought: str) -> str:
    return (
        marks.open
        + marks.after_open
        + thought
        + marks.before_close
        + marks.close
        + marks.after_close
    )


def write_calls(calls: CallSection, made: Sequence[Call]) -> str:
    """A section of calls exactly as it is declared."""
    written = [
        "".join(_segment(segment, call, at) for segment in calls.call)
        for at, call in enumerate(made)
    ]
    return calls.begin + calls.separator.join(written) + calls.end


def _segment(segment: Segment, call: Call, at: int) -> str:
    match segment:
        case Literal(text):
            return text
        case Name():
            return call.name
        case CallId(pattern, continues):
            return _id(pattern, call, at if continues else at + 1)
        case JsonArguments():
            return json.dumps(call.arguments, ensure_ascii=False)
        case ParameterList():
            return "".join(_parameter(segment, *pair) for pair in call.arguments.items())
        case PythonArguments():
            return ", ".join(f"{key}={_python(value)}" for key, value in call.arguments.items())
        case LooseArguments(quote):
            return loose_text(dict(call.arguments), quote, ordered=True)
        case ElementArguments(mark):
            return _elements(call.arguments, mark)
        case _:
            raise AssertionError(segment)


def _id(pattern: str, call: Call, at: int) -> str:
    if "{" not in pattern or "{10}" in pattern or "{9}" in pattern:
        return call.id
    return pattern.replace("\\.", ".").replace("{name}", call.name).replace("{index}", str(at))


_TYPES = {
    str: "string", bool: "boolean", int: "number", list: "array", dict: "object",
    type(None): "null",
}  # fmt: skip


def _parameter(form: ParameterList, key: str, value: object) -> str:
    between = form.between
    if not isinstance(value, str) and form.between_json is not None:
        between = form.between_json.replace("{type}", _TYPES[type(value)])
    if isinstance(value, str):
        written = value
    elif form.constants == "python" and (value is None or isinstance(value, bool)):
        written = str(value)
    else:
        written = json.dumps(value, ensure_ascii=False)
    return f"{form.before}{key}{between}{written}{form.after}"


def _elements(value: object, mark: str) -> str:
    if isinstance(value, dict):
        return "".join(f"{mark}<{k}>{_elements(v, mark)}{mark}</{k}>" for k, v in value.items())
    if isinstance(value, list):
        return "".join(f"{mark}<item>{_elements(v, mark)}{mark}</item>" for v in value)
    return value if isinstance(value, str) else json.dumps(value)


def _python(value: object) -> str:
    return repr(value) if isinstance(value, bool) else json.dumps(value, ensure_ascii=False)
