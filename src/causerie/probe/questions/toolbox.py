"""Two functions to offer, and how a call of one of them must look (interface 2.3, 2.4)."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from jsonschema import Draft202012Validator

from causerie.probe.reading import ProbeAnswer, ProbeCall
from causerie.protocol import bounded_json

WEATHER_PARAMETERS: dict[str, object] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 24},
        "unit": {"type": "string", "enum": ["celsius", "kelvin"]},
    },
    "required": ["city", "unit"],
    "additionalProperties": False,
}
NOW_PARAMETERS: dict[str, object] = {
    "type": "object",
    "properties": {"zone": {"type": "string", "enum": ["utc", "local"]}},
    "required": ["zone"],
    "additionalProperties": False,
}
WEATHER: dict[str, object] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": WEATHER_PARAMETERS,
    },
}
NOW: dict[str, object] = {
    "type": "function",
    "function": {"name": "now", "description": "The time", "parameters": NOW_PARAMETERS},
}
TOOLS = [WEATHER, NOW]
_PARAMETERS = {"get_weather": WEATHER_PARAMETERS, "now": NOW_PARAMETERS}


def call_faults(answer: ProbeAnswer) -> list[str]:
    """Return the faults of an answer's calls, and of how it ended.

    If several calls arrived and the output limit cut the last one, the others are judged.
    """
    if answer.finish == "length" and len(answer.calls) > 1:
        answer = replace(answer, calls=answer.calls[:-1], finish="tool_calls")
    missing = []
    ids = [call.id for call in answer.calls]
    if any(not isinstance(id, str) or not id for id in ids) or len(set(map(str, ids))) < len(ids):
        missing.append("a call without an `id` of its own")
    if any(call.type != "function" for call in answer.calls):
        missing.append("`type` is not function")
    for call in answer.calls:
        missing += _argument_faults(call)
    if answer.finish != "tool_calls":
        missing.append(f"finish reason {answer.finish!r} instead of tool_calls")
    return missing


def _argument_faults(call: ProbeCall) -> list[str]:
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
