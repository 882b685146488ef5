"""Replies in a shape (interface R1, R2; contract 1): the shape must hold although nothing
in the conversation asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

import msgspec
from jsonschema import Draft202012Validator

from causerie.probe.question import (
    ProbeQuestion,
    ProbeVerdict,
    Script,
    Subject,
    no,
    partly,
    question,
    unclear,
    yes,
)
from causerie.probe.reading import ProbeAnswer, answered, refusal
from causerie.protocol import bounded_json

_SAID = "Say hello in plain words, not in JSON."  # the word must be there for some servers
SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "fruit": {"type": "string", "enum": ["kiwi-7", "plum-3"]},
        "count": {"type": "integer", "enum": [41, 43]},
    },
    "required": ["fruit", "count"],
    "additionalProperties": False,
}
_RARE: dict[str, object] = {
    "type": "object",
    "properties": {
        "codes": {
            "type": "array",
            "items": {"type": "integer", "enum": [7, 8, 9]},
            "minItems": 3,
            "maxItems": 3,
            "uniqueItems": True,
        }
    },
    "required": ["codes"],
    "additionalProperties": False,
}
_GRAMMARS = ('start: "code-" /[0-9]{3}/', 'root ::= "code-" [0-9] [0-9] [0-9]')
_CHOICES = ["zebra-17", "okapi-23"]
_STRUCTURED = ("structured_outputs",)
_CODE = re.compile(r"code-[0-9]{3}")


def _format(schema: object) -> dict[str, object]:
    inner = {"name": "probe", "strict": True, "schema": schema}
    return {"type": "json_schema", "json_schema": inner}


def _json(text: str) -> object:
    try:
        return bounded_json.decode(text.encode())
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


@question("response_format.object", "R2", decides=("response_format",), tokens=160)
def _object(subject: Subject) -> Script:
    """Does `json_object` give an object?"""
    answer = answered((yield subject.ask(_SAID, 96, response_format={"type": "json_object"})))
    if isinstance(_json(answer.text), dict):
        return yes()
    if answer.finish == "length" and re.match(r'\s*\{\s*("|\Z)', answer.text):
        return yes("an object that the output limit cut")
    return no(f"accepted, no effect: {answer.text!r:.80}")


def _follows(schema: Mapping[str, object], text: str) -> bool:
    value = _json(text)
    return value is not None and Draft202012Validator(schema).is_valid(value)


def _by_schema(answer: ProbeAnswer) -> ProbeVerdict:
    if _follows(SCHEMA, answer.text):
        return yes() if answer.finish == "stop" else partly(f"finish reason {answer.finish!r}")
    if answer.finish == "length":
        return no(f"not done within the output limit: {answer.text!r:.80}")
    return no(f"accepted, not followed: {answer.text!r:.80}")


@question("response_format.schema", "R1", decides=("response_format",), tokens=160)
def _schema(subject: Subject) -> Script:
    """Does `json_schema` hold?"""
    answer = answered((yield subject.ask(_SAID, 64, response_format=_format(SCHEMA))))
    return _by_schema(answer)


@question("response_format.schema.thinking", "R1, contract 1", tokens=420, loud=True)
def _schema_loud(subject: Subject) -> Script:
    """And with thinking on?"""
    answer = answered((yield subject.loudly(_SAID, 320, response_format=_format(SCHEMA))))
    verdict = _by_schema(answer)
    if verdict == yes() and not answer.reasoning:
        return partly("followed, but without thinking")
    return verdict


@question("response_format.strict", "contract 1", tokens=160)
def _strict(subject: Subject) -> Script:
    """Is every keyword of a schema enforced, or the schema refused?"""
    # With a keyword that few providers enforce.
    reply = yield subject.ask(_SAID, 48, response_format=_format(_RARE))
    if (refused := refusal(reply)) is not None:
        return yes(refused)
    if reply.status >= 500:
        return partly("an error after the answer was made: its rule was broken, or more is wrong")
    answer = answered(reply)
    if _follows(_RARE, answer.text):
        return yes("it held")
    if answer.finish == "length":
        return unclear("not done within the output limit")
    return no(f"a keyword is left out in silence: {answer.text!r:.80}")


def _structured(kind: str, value: object, holds: Callable[[str], bool]) -> ProbeQuestion:
    name = f"structured_outputs.{kind}"

    @question(name, "contract 1", f"Does `{name}` hold?", decides=_STRUCTURED, tokens=160)
    def script(subject: Subject) -> Script:
        answer = answered((yield subject.ask(_SAID, 48, structured_outputs={kind: value})))
        if holds(answer.text):
            return yes()
        return no(f"accepted, not followed: {answer.text!r:.80}")

    return script


@question("structured_outputs.grammar", "contract 1", decides=_STRUCTURED, asks=2, tokens=160)
def _grammar(subject: Subject) -> Script:
    """Does `structured_outputs.grammar` hold?"""
    last = no("")
    for text in _GRAMMARS:
        reply = yield subject.ask(_SAID, 32, structured_outputs={"grammar": text})
        if (refused := refusal(reply)) is not None:
            last = no(refused)
            continue
        said = answered(reply).text
        if _CODE.fullmatch(said):
            return yes("in Lark's syntax" if text == _GRAMMARS[0] else "in GBNF")
        last = no(f"accepted, not followed: {said!r:.80}")
    return last


QUESTIONS = (
    *(_object, _schema, _schema_loud, _strict),
    _structured("json", SCHEMA, partial(_follows, SCHEMA)),
    _structured("regex", _CODE.pattern, lambda text: _CODE.fullmatch(text) is not None),
    _structured("choice", _CHOICES, lambda text: text in _CHOICES),
    _grammar,
)
