"""Questions that are to be answered in a given form, as users of small models ask them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Form:
    """A question and the JSON Schema of its answer."""

    question: str
    schema: Mapping[str, Any]


def _object(**properties: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_TEXT = {"type": "string"}
_COUNT = {"type": "integer"}
_NUMBER = {"type": "number"}
_TEXTS = {"type": "array", "items": _TEXT}

FORMS: Sequence[Form] = (
    Form("Tell me a joke about cats.", _object(setup=_TEXT, punchline=_TEXT)),
    Form("Give me a short recipe for pancakes.", _object(title=_TEXT, ingredients=_TEXTS)),
    Form("Who wrote Hamlet, and when?", _object(author=_TEXT, year=_COUNT)),
    Form(
        "Is this review good or bad: 'The food was cold and the waiter was rude.'",
        _object(sentiment={"enum": ["good", "bad"]}, reason=_TEXT),
    ),
    Form("Name three colours of the rainbow.", _object(colours=_TEXTS)),
    Form("What is the capital of France?", _object(city=_TEXT, country=_TEXT)),
    Form(
        "Extract the person: 'Anna Berg, 34, lives in Oslo.'",
        _object(name=_TEXT, age=_COUNT, city=_TEXT),
    ),
    Form("How many legs does a spider have?", _object(animal=_TEXT, legs=_COUNT)),
    Form(
        "Turn this into an order: two apples at 0.50 and one melon at 3.20.",
        _object(
            items={
                "type": "array",
                "items": _object(name=_TEXT, count=_COUNT, price=_NUMBER),
            }
        ),
    ),
    Form(
        "Which day comes after Monday?",
        _object(day={"enum": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]}),
    ),
    Form(
        "Is water wet? Answer yes or no, and say how sure you are.",
        _object(answer={"type": "boolean"}, certainty={"type": "number"}),
    ),
    Form("Translate 'good morning' into French and German.", _object(french=_TEXT, german=_TEXT)),
)
