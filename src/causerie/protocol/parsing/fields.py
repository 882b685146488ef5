"""Reading one JSON object field by field, with errors that name the field.

``null`` is the same as leaving an optional field out. A path is written as in
``messages[3].tool_calls[0].id``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping

import msgspec
from msgspec import Struct

from causerie.errors import InvalidRequest


def kind(value: object) -> str:
    """Return JSON's name for the type of ``value``."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "a number"
        case float():
            return "a number" if value.is_integer() else "a number with a fraction"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"


def shown(value: object) -> str:
    """``value`` for an error message, cut short; it came from the caller."""
    text = repr(value) if not isinstance(value, str) else f'"{value}"'
    return text if len(text) <= 60 else f"{text[:57]}..."


def wrong_type(param: str, expected: str, value: object) -> InvalidRequest:
    return InvalidRequest(
        f"`{param}` must be {expected}, not {kind(value)}.", code="invalid_type", param=param
    )


def wrong_value(param: str, message: str) -> InvalidRequest:
    """``message`` continues the sentence that begins with the name of the field."""
    return InvalidRequest(f"`{param}` {message}", code="invalid_value", param=param)


def missing(param: str, expected: str) -> InvalidRequest:
    return InvalidRequest(
        f"`{param}` is missing; it must be {expected}.", code="missing_parameter", param=param
    )


def unsupported(param: str, advice: str) -> InvalidRequest:
    return InvalidRequest(
        f"`{param}` is not supported here. {advice}", code="unsupported_parameter", param=param
    )


class ObjectReader(Struct, frozen=True):
    """One object of the body; ``path`` is where it stands (empty for the body itself)."""

    values: Mapping[str, object]
    path: str = ""

    def param(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def get(self, name: str) -> object:
        return self.values.get(name)

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def boolean(self, name: str) -> bool | None:
        value = self.values.get(name)
        if value is None or isinstance(value, bool):
            return value
        raise wrong_type(self.param(name), "true or false", value)

    def integer(self, name: str, least: int, most: int) -> int | None:
        value = self.values.get(name)
        if value is None:
            return None
        return integer(value, self.param(name), least, most)

    def number(self, name: str, least: float, most: float, *, above: bool = False) -> float | None:
        """A finite number from ``least`` (itself left out with ``above``) to ``most``."""
        value = self.values.get(name)
        if value is None:
            return None
        return number(value, self.param(name), least, most, above=above)

    def string(self, name: str, *, most: int | None = None) -> str | None:
        """A string; ``most`` is the greatest length in characters."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise wrong_type(self.param(name), "a string", value)
        if most is not None and len(value) > most:
            raise wrong_value(self.param(name), f"must be at most {most} characters long.")
        return value

    def required_string(
        self, name: str, *, most: int | None = None, expected: str = "a string"
    ) -> str:
        """A string of at least one character; ``expected`` says which, where there is none."""
        value = self.string(name, most=most)
        if value is None:
            raise missing(self.param(name), expected)
        if not value:
            raise wrong_value(self.param(name), "must not be empty.")
        return value

    def word(self, name: str, words: Collection[str]) -> str | None:
        value = self.string(name)
        if value is None or value in words:
            return value
        raise wrong_value(
            self.param(name), f"must be one of {', '.join(words)}, not {shown(value)}."
        )

    def child(self, name: str, expected: str = "an object") -> ObjectReader | None:
        """An object; ``expected`` says which, where something else is there."""
        value = self.values.get(name)
        if value is None:
            return None
        return as_object(value, self.param(name), expected)

    def required_object(self, name: str, expected: str = "an object") -> ObjectReader:
        value = self.child(name, expected)
        if value is None:
            raise missing(self.param(name), expected)
        return value

    def array(self, name: str, *, most: int) -> list[object] | None:
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise wrong_type(self.param(name), "an array", value)
        if len(value) > most:
            raise wrong_value(
                self.param(name), f"holds {len(value)} elements; at most {most} are allowed."
            )
        return value

    def objects(
        self, name: str, *, most: int, expected: str = "an object"
    ) -> Iterator[ObjectReader]:
        for index, value in enumerate(self.array(name, most=most) or ()):
            yield as_object(value, f"{self.param(name)}[{index}]", expected)


def as_object(value: object, param: str, expected: str = "an object") -> ObjectReader:
    if not isinstance(value, dict):
        raise wrong_type(param, expected, value)
    return ObjectReader(value, param)


def integer(value: object, param: str, least: int, most: int) -> int:
    """An integer, also one written with a fraction of zero (``16.0``), as JSON Schema has it."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(param, "an integer", value)
    if not least <= value <= most:
        raise wrong_value(param, f"must be from {least} to {most}, not {shown(value)}.")
    return value


def number(value: object, param: str, least: float, most: float, *, above: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(param, "a number", value)
    if least <= value <= most and math.isfinite(value) and not (above and value == least):
        return float(value)
    start = f"greater than {least:g}" if above else f"from {least:g}"
    joint = " and at most" if above else " to"
    raise wrong_value(param, f"must be {start}{joint} {most:g}, not {shown(value)}.")


class _Object(Struct):
    """Any object: members that a structure does not have are read over, and nothing is made."""


_read_over = msgspec.json.Decoder(_Object).decode


def is_object(arguments: object) -> bool:
    """Return true for the JSON text of an object, as arguments must be."""
    if arguments == "{}":
        return True
    if not isinstance(arguments, str):
        return False
    try:
        _read_over(arguments)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    return True
