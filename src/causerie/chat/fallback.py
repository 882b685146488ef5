"""Tools and thinking for models whose template shows neither.

Tools are described in the system message, calls and results are written into plain content in the
declared form, and thinking is asked for in words, all briefly: the models are small.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from causerie.chat.call_syntax.relaxed import loose_text
from causerie.chat.formats import format as forms
from causerie.chat.history import content_text
from causerie.chat.schema.values import json_type
from causerie.chat.taint import Traced, authored, joined, origin_of, read_arguments, write_json
from causerie.chat.template_capabilities import Entry

_RESULT_OPEN, _RESULT_CLOSE = authored("<tool_response>\n"), authored("\n</tool_response>")


def tools_text(tools: Sequence[Entry], calls: forms.CallSection) -> Traced:
    lines = [write_json(tool["function"]) for tool in tools]
    example = call_text(calls, authored("NAME"), authored('{"PARAMETER": "VALUE"}'))
    before = authored("You can call these functions:\n")
    form = authored("\n\nTo call one, answer in exactly this form:\n")
    then = "The result comes in the next message. If no function is needed, just answer."
    return joined((before, authored("\n").join(lines), form, example, authored(f"\n{then}")))


def with_reasoning(
    entry: Entry, reasoning: forms.Reasoning, keys: Sequence[str], gap: str = ""
) -> Entry:
    """Return the message with its reasoning before its content, as the model wrote it.

    ``gap`` is what the template writes by itself between a content and its calls.
    """
    thought = next((entry[key] for key in keys if entry.get(key)), None)
    if thought is None:
        return entry
    begin = authored(reasoning.open + reasoning.after_open)
    end, said = reasoning.before_close + reasoning.close + reasoning.after_close, entry["content"]
    if entry.get("tool_calls") and not said:
        end = end.removesuffix(gap)
    text = joined((begin, thought, authored(end), content_text(said)))
    return {key: value for key, value in entry.items() if key not in keys} | {"content": text}


def thought_once(prompt: Traced, reasoning: forms.Reasoning) -> Traced:
    """Return the prompt without the empty reasoning that a template writes before the content."""
    opened, closed = re.escape(reasoning.open), re.escape(reasoning.close)
    origin = origin_of(prompt)
    parts: list[str] = []
    done = 0
    for empty in re.finditer(rf"{opened}\s*{closed}\s*(?=({opened}))", prompt):
        if not any(origin[empty.start() : empty.end(1)]):
            parts.append(prompt[done : empty.start()])
            done = empty.end()
    return joined((*parts, prompt[done:]))


def without_calls(conversation: Sequence[Entry], calls: forms.CallSection) -> list[Entry]:
    """Return the messages with calls in their content, and results as messages of the user."""
    plain: list[Entry] = []
    after_result = False
    for entry in conversation:
        if entry["role"] != "tool":
            plain.append(said_calls(entry, calls))
            after_result = False
            continue
        text = joined((_RESULT_OPEN, content_text(entry["content"]), _RESULT_CLOSE))
        if after_result:
            text = joined((content_text(plain.pop()["content"]), authored("\n"), text))
        plain.append({"role": authored("user"), "content": text})
        after_result = True
    return plain


def call_text(calls: forms.CallSection, *call: str) -> Traced:
    """Return one call (name, arguments and perhaps an id) in the form that is declared."""
    return joined((authored(calls.begin), _written_call(calls, call), authored(calls.end)))


def said_calls(entry: Entry, calls: forms.CallSection) -> Entry:
    made = entry.get("tool_calls")
    if not isinstance(made, list):
        return entry
    texts = [_written_call(calls, _parts_of(call)) for call in made]
    section = joined(
        (authored(calls.begin), authored(calls.separator).join(texts), authored(calls.end))
    )
    content = content_text(entry["content"])
    gap = "" if not content or content.endswith("\n") else "\n"
    text = joined((content, authored(gap), section))
    return {key: value for key, value in entry.items() if key != "tool_calls"} | {"content": text}


def _parts_of(call: Mapping[str, object]) -> tuple[str, ...]:
    function = call["function"]
    if not isinstance(function, Mapping):
        raise TypeError("a call without a function")
    arguments = function["arguments"]
    text = arguments if isinstance(arguments, str) else write_json(arguments)
    return str(function["name"]), text, str(call["id"])


def _written_call(calls: forms.CallSection, call: Sequence[str]) -> Traced:
    name, arguments, call_id, *_ = (*call, "ID")
    return joined(segment_text(one, name, arguments, call_id) for one in calls.call)


def segment_text(segment: forms.Segment, name: str, arguments: str, call_id: str) -> str:
    """Return one segment of a call as the model writes it; ``arguments`` are JSON."""
    match segment:
        case forms.Literal(text):
            return authored(text)
        case forms.Name():
            return name
        case forms.CallId():
            return call_id
        case forms.JsonArguments():
            return arguments
        case forms.ParameterList():
            return _parameter_text(segment, arguments)
        case forms.PythonArguments():
            items = read_arguments(arguments).items()
            return Traced(", ".join(f"{key}={_python(value)}" for key, value in items))
        case forms.ElementArguments(mark):
            return Traced(_elements(read_arguments(arguments), mark))
        case forms.LooseArguments(quote):
            items = read_arguments(arguments).items()
            pairs = (f"{key}:{loose_text(value, quote)}" for key, value in items)
            return joined((authored("{"), Traced(",".join(pairs)), authored("}")))


def _parameter_text(segment: forms.ParameterList, arguments: str) -> Traced:
    parts: list[str] = []
    for key, value in read_arguments(arguments).items():
        between, written = segment.between, str(value)
        if not isinstance(value, str):
            between = (segment.between_json or between).replace("{type}", json_type(value))
            python = segment.constants == "python" and (value is None or isinstance(value, bool))
            written = Traced(written) if python else write_json(value)
        parts += (authored(segment.before), key, authored(between), written)
        parts.append(authored(segment.after))
    return joined(parts)


def _elements(value: object, mark: str) -> str:
    if isinstance(value, Mapping):
        pairs = ((key, of) for key, of in value.items() if of is not None)
        return "".join(f"{mark}<{k}>{_elements(of, mark)}{mark}</{k}>" for k, of in pairs)
    if isinstance(value, list):
        return "".join(f"{mark}<item>{_elements(of, mark)}{mark}</item>" for of in value)
    return value if isinstance(value, str) else write_json(value)


def _python(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_python(k)}: {_python(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_python, value)) + "]"
    return write_json(value) if isinstance(value, str) else repr(value)
