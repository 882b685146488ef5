"""Questions on the form of replies (interface R1, R2, T; contract 1): JSON, grammars, tool calls.

A form must hold although nothing in the conversation asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import msgspec
from jsonschema import Draft202012Validator

from causerie.probe.question import (
    SAMPLES,
    Messages,
    ProbeAnswer,
    ProbeCall,
    ProbeRequest,
    Script,
    Subject,
    dig,
    no,
    partly,
    script,
    unclear,
    user,
    weighed,
    yes,
)
from causerie.protocol import bounded_json

_SAID = "Say hello in plain words, not in JSON."  # the word must be there for some servers
_SCHEMA: Mapping[str, object] = SAMPLES["schemas"]["fruit"]
_UNIQUE: Mapping[str, object] = SAMPLES["schemas"]["unique"]
_GRAMMARS = ('start: "code-" /[0-9]{3}/', 'root ::= "code-" [0-9] [0-9] [0-9]')
_CHOICES = ["zebra-17", "okapi-23"]
_CODE = re.compile(r"code-[0-9]{3}")


def _build_json_schema_format(schema: object) -> dict[str, object]:
    inner = {"name": "probe", "strict": True, "schema": schema}
    return {"type": "json_schema", "json_schema": inner}


def _decode_json_or_none(text: str) -> object:
    try:
        return bounded_json.decode(text.encode())
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


@script("response_format.object")
def _probe_json_object(subject: Subject) -> Script:
    answer = (yield subject.ask(_SAID, 96, response_format={"type": "json_object"})).answer()
    if isinstance(_decode_json_or_none(answer.text), dict):
        return yes()
    if answer.finish == "length" and re.match(r'\s*\{\s*("|\Z)', answer.text):
        return yes("an object that the output limit cut")
    return no(f"accepted, no effect: {answer.text!r:.80}")


def _matches_schema(schema: Mapping[str, object], text: str) -> bool:
    value = _decode_json_or_none(text)
    return value is not None and Draft202012Validator(schema).is_valid(value)


@script("schema")
def _probe_json_schema(subject: Subject, *, loud: bool = False) -> Script:
    ask, most = (subject.loudly, 320) if loud else (subject.ask, 64)
    answer = (yield ask(_SAID, most, response_format=_build_json_schema_format(_SCHEMA))).answer()
    if not _matches_schema(_SCHEMA, answer.text):
        if answer.finish == "length":
            return no(f"not done within the output limit: {answer.text!r:.80}")
        return no(f"accepted, not followed: {answer.text!r:.80}")
    if answer.finish != "stop":
        return partly(f"finish reason {answer.finish!r}")
    return partly("followed, but without thinking") if loud and not answer.reasoning else yes()


@script("response_format.strict")
def _probe_rare_schema_keyword(subject: Subject) -> Script:
    # With a keyword that few providers enforce.
    reply = yield subject.ask(_SAID, 48, response_format=_build_json_schema_format(_UNIQUE))
    if (refused := reply.refusal) is not None:
        return yes(refused)
    if reply.status >= 500:
        return partly("an error after the answer was made: its rule was broken, or more is wrong")
    answer = reply.answer()
    if _matches_schema(_UNIQUE, answer.text):
        return yes("it held")
    if answer.finish == "length":
        return unclear("not done within the output limit")
    return no(f"a keyword is left out in silence: {answer.text!r:.80}")


_STRUCTURES: Mapping[str, tuple[object, Callable[[str], bool]]] = {
    "json": (_SCHEMA, partial(_matches_schema, _SCHEMA)),
    "regex": (_CODE.pattern, lambda text: _CODE.fullmatch(text) is not None),
    "choice": (_CHOICES, lambda text: text in _CHOICES),
}


@script("structured")
def _probe_structured_output(subject: Subject, *, kind: str) -> Script:
    value, holds = _STRUCTURES[kind]
    answer = (yield subject.ask(_SAID, 48, structured_outputs={kind: value})).answer()
    return yes() if holds(answer.text) else no(f"accepted, not followed: {answer.text!r:.80}")


@script("structured_outputs.grammar")
def _probe_grammar_output(subject: Subject) -> Script:
    last = no("")
    for text in _GRAMMARS:
        reply = yield subject.ask(_SAID, 32, structured_outputs={"grammar": text})
        if (refused := reply.refusal) is not None:
            last = no(refused)
            continue
        said = reply.answer().text
        if _CODE.fullmatch(said):
            return yes("in Lark's syntax" if text == _GRAMMARS[0] else "in GBNF")
        last = no(f"accepted, not followed: {said!r:.80}")
    return last


# Tools: functions that may be called, and functions that must be called.

_TOOLS = [{"type": "function", "function": one} for one in SAMPLES["functions"]]
_WEATHER = _TOOLS[:1]
_PARAMETERS = {one["name"]: one["parameters"] for one in SAMPLES["functions"]}
_CALL, _RESULT = SAMPLES["call"], SAMPLES["result"]


# If several calls came and the output limit cut the last one, the others are judged.
def _find_call_faults(answer: ProbeAnswer) -> list[str]:
    if answer.finish == "length" and len(answer.calls) > 1:
        answer = replace(answer, calls=answer.calls[:-1], finish="tool_calls")
    missing = []
    ids = [call.id for call in answer.calls]
    if any(not isinstance(id, str) or not id for id in ids) or len(set(map(str, ids))) < len(ids):
        missing.append("a call without an `id` of its own")
    if any(call.type != "function" for call in answer.calls):
        missing.append("`type` is not function")
    for call in answer.calls:
        missing += _find_argument_faults(call)
    if answer.finish != "tool_calls":
        missing.append(f"finish reason {answer.finish!r} instead of tool_calls")
    return missing


def _find_argument_faults(call: ProbeCall) -> list[str]:
    if not isinstance(call.name, str) or call.name not in _PARAMETERS:
        return [f"the function {call.name!r:.40} was not offered"]
    if not isinstance(call.arguments, str):
        return ["`arguments` is no string"]
    try:
        value: object = bounded_json.decode(call.arguments.encode())
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return [f"`arguments` is not JSON: {call.arguments!r:.60}"]
    if not Draft202012Validator(_PARAMETERS[call.name]).is_valid(value):
        return [f"the arguments break the schema: {call.arguments!r:.80}"]
    return []


WANTED = "What is the weather in Paris in celsius? Use the function."
MOST = 128


def _build_optional_call_request(subject: Subject) -> ProbeRequest:
    return subject.ask(WANTED, MOST, tools=_WEATHER).with_reuse()


@script("tools")
def _probe_tool_call(subject: Subject) -> Script:
    free = (yield _build_optional_call_request(subject)).answer()
    if free.calls:
        return weighed(_find_call_faults(free), of=4, how="called by itself")
    reply = yield subject.ask(WANTED, MOST, tools=_WEATHER, tool_choice="required").with_reuse()
    if reply.refusal is None and (forced := reply.answer()).calls:
        return weighed(_find_call_faults(forced), of=4, how="called when required, not by itself")
    return no(f"accepted, no call came: {free.text!r:.80}")


@script("tools.stream")
def _probe_tool_stream(subject: Subject) -> Script:
    fields = {"tools": _WEATHER, "tool_choice": "required", "stream": True}
    stream = (yield subject.ask(WANTED, MOST, **fields)).stream()
    answer = stream.answer()
    if not answer.calls:
        return no("no call came in the stream")
    pieces = [
        piece
        for delta in stream.deltas()
        if isinstance(calls := delta.get("tool_calls"), list)
        for piece in calls
    ]
    missing = _find_call_faults(answer)
    first = pieces[0]
    if not all(dig(first, *path) is not None for path in (("index",), ("id",), ("type",))):
        missing.append("the first piece lacks index, id or type")
    if dig(first, "function", "arguments") != "":
        missing.append("the first piece's arguments are not empty")
    if len(stream.finishes()) != 1:
        missing.append(f"{len(stream.finishes())} finish reasons")
    return weighed(missing, of=6)


@script("tools.exchange")
def _probe_use_of_tool_result(subject: Subject) -> Script:
    said = {"role": "assistant", "content": "", "tool_calls": [_CALL]}
    talk: Messages = [user(WANTED), said, _RESULT]
    answer = (yield subject.ask(talk, 48, tools=_WEATHER)).answer()
    if answer.calls:
        return partly("taken, and answered with another call")
    if not answer.text.strip():
        return partly("taken, and answered with nothing")
    return yes("it uses the result" if "31" in answer.text else "taken; the result is not named")


@script("tools.history")
def _probe_unusual_call_history(subject: Subject) -> Script:
    broken = _CALL | {"function": {"name": "get_weather", "arguments": '{"city": '}}
    stray = _RESULT | {"tool_call_id": "call_nobody"}
    missing = []
    for name, fields, result in (
        ("null content", {"content": None, "tool_calls": [_CALL]}, _RESULT),
        ("no content", {"tool_calls": [_CALL]}, _RESULT),
        ("broken arguments", {"content": "", "tool_calls": [broken]}, _RESULT),
        ("a result that answers no call", {"content": "", "tool_calls": [_CALL]}, stray),
    ):
        talk: Messages = [user(WANTED), {"role": "assistant", **fields}, result]
        reply = yield subject.ask(talk, 8, tools=_WEATHER)
        if reply.status >= 500:
            missing.append(f"{name}: status {reply.status}")
        elif (refused := reply.refusal) is not None:
            missing.append(f"{name}: {refused}")
        else:
            reply.answer()
    return weighed(missing, of=4)


@script("tool_choice.none")
def _probe_tool_choice_none(subject: Subject) -> Script:
    free = (yield _build_optional_call_request(subject)).answer()
    answer = (yield subject.ask(WANTED, MOST, tools=_WEATHER, tool_choice="none")).answer()
    if answer.calls:
        return no("accepted, no effect: a call came")
    if free.calls:
        return yes()
    if free.prompt != answer.prompt:
        return yes("no call came, and the prompt is another one")
    return unclear("no call came, but none comes without it either")


@script("parallel_tool_calls")
def _probe_parallel_calls(subject: Subject) -> Script:
    said = "Get the weather in Paris and the weather in Rome. Make two calls."
    fields = {"tools": _TOOLS, "tool_choice": "required"}
    many = (yield subject.ask(said, 160, **fields, parallel_tool_calls=True)).answer()
    one = (yield subject.ask(said, 160, **fields, parallel_tool_calls=False)).answer()
    words = f"{len(many.calls)} calls with it, {len(one.calls)} without"
    if len(one.calls) > 1:
        return no(f"accepted, no effect: {words}")
    if len(many.calls) > 1 and len(one.calls) == 1:
        return yes(words)
    return unclear(f"nothing to tell it by: {words}")


@script("forced call")
def _probe_forced_call(
    subject: Subject,
    *,
    choice: object,
    name: str | None = None,
    said: str = WANTED,
    loud: bool = False,
) -> Script:
    ask, most = (subject.loudly, 320) if loud else (subject.ask, 128)
    answer = (yield ask(said, most, tools=_TOOLS, tool_choice=choice)).answer()
    if not answer.calls:
        return no(f"accepted, no call came: {answer.text!r:.80}")
    names = {str(call.name) for call in answer.calls}
    if name is not None and names != {name}:
        return no(f"asked for {name}, called {', '.join(sorted(names))}")
    faults = _find_call_faults(answer)
    if loud and not faults and not answer.reasoning:
        return partly("called, but without thinking")
    return weighed(faults, of=len(faults) + 1)
