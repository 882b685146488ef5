"""Decode the body of a request within bounds, and read its fields with errors that name them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from causerie.errors import InvalidRequest
from causerie.protocol import bounded_json
from causerie.protocol.declaration import Parameter
from causerie.protocol.parameters import PARAMETERS, ParsingRules

_KINDS: Mapping[type, str] = {
    type(None): "null", bool: "a boolean", int: "a number", float: "a number", str: "a string",
    list: "an array",
}  # fmt: skip


def kind(value: object) -> str:
    if isinstance(value, float) and not value.is_integer():
        return "a number with a fraction"
    return _KINDS.get(type(value), "an object")


def shown(value: object) -> str:
    text = repr(value) if not isinstance(value, str) else f'"{value}"'
    return text if len(text) <= 60 else f"{text[:57]}..."


def wrong_type(param: str, expected: str, value: object) -> InvalidRequest:
    return InvalidRequest(
        f"`{param}` must be {expected}, not {kind(value)}.", code="invalid_type", param=param
    )


def wrong_value(param: str, message: str) -> InvalidRequest:
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
    """Reads the fields of one object of the body; ``null`` is the same as leaving one out."""

    values: Mapping[str, object]
    path: str = ""  # its place, like `messages[3].tool_calls[0]`; empty for the body itself

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
        return None if value is None else integer(value, self.param(name), least, most)

    def number(self, name: str, least: float, most: float, *, above: bool = False) -> float | None:
        """Return the finite number in a field, from ``least`` (or ``above`` it) to ``most``."""
        value = self.values.get(name)
        if value is None:
            return None
        return number(value, self.param(name), least, most, above=above)

    def string(self, name: str, *, most: int | None = None) -> str | None:
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
        """Return the non-empty string in a field; the error for a missing one says ``expected``."""
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
        value = self.values.get(name)
        return None if value is None else as_object(value, self.param(name), expected)

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

    def strings(self, name: str, *, most: int, longest: int | None = None) -> list[str]:
        elements = enumerate(self.array(name, most=most) or ())
        return [text(each, f"{self.param(name)}[{index}]", longest) for index, each in elements]

    def objects(
        self, name: str, *, most: int, expected: str = "an object"
    ) -> Iterator[ObjectReader]:
        for index, value in enumerate(self.array(name, most=most) or ()):
            yield as_object(value, f"{self.param(name)}[{index}]", expected)


def as_object(value: object, param: str, expected: str = "an object") -> ObjectReader:
    if not isinstance(value, dict):
        raise wrong_type(param, expected, value)
    return ObjectReader(value, param)


def text(value: object, param: str, most: int | None = None) -> str:
    if not isinstance(value, str):
        raise wrong_type(param, "a string", value)
    if not value:
        raise wrong_value(param, "must not be empty.")
    if most is not None and len(value) > most:
        raise wrong_value(param, f"must be at most {most} characters long.")
    return value


def integer(value: object, param: str, least: int, most: int) -> int:
    """Return an integer from ``least`` to ``most``; ``16.0`` is one too, as in JSON Schema."""
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
    """Any JSON object: decoding into it checks the syntax, and makes nothing of the members."""


_read_over = msgspec.json.Decoder(_Object).decode


def is_object(arguments: object) -> bool:
    """Return true if ``arguments`` is a string that holds a JSON object."""
    if arguments == "{}":
        return True
    if not isinstance(arguments, str):
        return False
    try:
        _read_over(arguments)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    return True


def read_parameter(body: ObjectReader, name: str) -> Any:
    """Return a parameter of the body, checked by its declaration; ``None`` if it is not given."""
    if body.values.get(name) is None:
        return None
    return _READERS[name](body)


def _build_reader(body_field: Parameter) -> Callable[[ObjectReader], Any] | None:
    name, number, most = body_field.name, body_field.number, body_field.most_characters
    if number is not None and number.kind is float:
        return lambda body: body.number(name, number.least, number.most, above=number.above)
    if number is not None:
        first, last = int(number.least), int(number.most)
        return lambda body: body.integer(name, first, last)
    if body_field.bare is bool:
        return lambda body: body.boolean(name)
    if body_field.bare is not str or most is None:
        return None
    return lambda body: body.string(name, most=most)


_READERS: Mapping[str, Callable[[ObjectReader], Any]] = {
    name: reader for name, each in PARAMETERS.items() if (reader := _build_reader(each)) is not None
}


# Numbers that no double and no 64-bit integer holds, `NaN` and `Infinity` are refused: what cannot
# be passed on unchanged is not altered.

BOUND_SETTINGS = {
    "nesting": "server.max_nesting",
    "values": "server.max_values",
    "bare": "server.max_values",
    "escapes": "server.max_escapes",
}
"""The settings of the bounds that an operator can raise."""
_COMPRESSED: Mapping[str, bytes | tuple[bytes, ...]] = {
    "gzip": b"\x1f\x8b",
    "zstd": b"\x28\xb5\x2f\xfd",
    "zlib": (b"x\x01", b"x\x9c", b"x\xda"),
}
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_MARKS = [chr(code) for code in range(0xFDD0, 0xFDF0)]  # characters that no text should have


def check_work(body: bytes, rules: ParsingRules) -> None:
    try:
        bounded_json.check(body, rules.work)
    except bounded_json.TooMuchWork as error:
        _reject_compressed_body(body)
        setting = BOUND_SETTINGS.get(error.bound)
        further = f", or have the operator raise `{setting}`" if setting else ""
        raise invalid_json(
            f"The body takes too long to decode: {error}; send less of it{further}."
        ) from error


def decode_object(body: bytes) -> dict[str, object]:
    if not body.strip():
        raise invalid_json("The body is empty; send a JSON object.")
    if body.startswith(b"\xef\xbb\xbf"):
        raise invalid_json("The body begins with a byte order mark; send UTF-8 without one.")
    _reject_compressed_body(body)
    try:
        document = msgspec.json.decode(body)
    except UnicodeDecodeError as error:
        raise invalid_json(
            f"The body is not valid UTF-8 ({error.reason}); send JSON text encoded as UTF-8."
        ) from error
    except msgspec.MsgspecError as error:
        why = str(error).removeprefix("JSON is malformed: ").partition(" - at `")[0]
        raise invalid_json(
            f"The body is not valid JSON ({why[:1].lower() + why[1:]}); send one JSON object, "
            "encoded as UTF-8, without NaN, Infinity or unpaired surrogates."
        ) from error
    if not isinstance(document, dict):
        raise invalid_json("The body must be a JSON object.")
    return document


def _reject_compressed_body(body: bytes) -> None:
    for name, beginnings in _COMPRESSED.items():
        if body.startswith(beginnings):
            raise invalid_json(
                f"The body looks compressed ({name}), and there is no `Content-Encoding` header; "
                "send JSON text that is not compressed."
            )


def decode_marked(body: bytes) -> tuple[dict[str, object], str]:
    """Return the object in the body, and the mark of unpaired surrogates; see ``mark_halves``."""
    try:
        return decode_object(body), ""
    except InvalidRequest:
        marked, mark = mark_halves(body)
        if not mark:
            raise
        return decode_object(marked), mark


def mark_halves(body: bytes) -> tuple[bytes, str]:
    """Return the body with a mark in place of each unpaired surrogate escape, and the mark.

    The mark is a character that the body has nowhere else; it is empty where there are no halves.
    """
    lower = body.lower()
    free = (
        mark for mark in _MARKS if mark.encode() not in body and b"\\u%x" % ord(mark) not in lower
    )
    mark = next(free, "") if b"\\ud" in lower else ""
    if not mark:
        return body, ""
    marked = _ESCAPE.sub(lambda found: mark.encode() if found["half"] else found[0], body)
    return (body, "") if marked == body else (marked, mark)


def invalid_json(message: str) -> InvalidRequest:
    return InvalidRequest(message, code="invalid_json")
