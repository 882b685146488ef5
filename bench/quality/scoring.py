"""How the leaderboard judges calls, argument by argument.

Calls are right if there are as many as expected, in any order, and each names the function, has
all required arguments and no others than those listed, and every value has a type and a value that
are expected. Types are strict: ``2.0`` is no integer, and ``"2"`` no number. Texts are compared
without case, spaces and punctuation, but only up to the first level inside a list or an object. An
argument may be left out if it is not required and an empty text is among its values. Where a value
of another type than the function's is listed (the name of a variable), it is compared as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_TYPES: Mapping[str, type] = {
    "string": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "any": str,
}
_LEFT_OUT = ""  # in a list of values: the argument may be left out
_IGNORED = str.maketrans({**dict.fromkeys(" ,./-_*^"), "'": '"'})

Call = tuple[str, Mapping[str, Any]]
"""A function's name and its arguments."""
Values = Mapping[str, Sequence[Any]]
"""The values that each argument may have."""
Parameters = Mapping[str, Any]
"""Parameters of a function as the leaderboard describes them, with the types of Python."""


def are_right(
    calls: Sequence[Call],
    expected: Sequence[tuple[str, Values]],
    functions: Mapping[str, Parameters],
) -> bool:
    """Return whether these calls are the expected ones; ``functions`` are parameters by name."""
    left = list(calls)
    if len(left) != len(expected):
        return False
    for name, values in expected:
        fitting = (at for at, one in enumerate(left) if _fits(one, name, values, functions[name]))
        found = next(fitting, None)
        if found is None:
            return False
        del left[found]
    return True


def _fits(call: Call, name: str, values: Values, parameters: Parameters) -> bool:
    called, arguments = call
    described = parameters["properties"]
    if called != name or not set(parameters["required"]) <= arguments.keys():
        return False
    if not arguments.keys() <= described.keys() & values.keys():
        return False
    return all(
        _is_expected(arguments[key], described[key], allowed)
        if key in arguments
        else _LEFT_OUT in allowed
        for key, allowed in values.items()
    )


def _is_expected(value: Any, described: Parameters, allowed: Sequence[Any]) -> bool:
    """Return whether a value has an expected type, and is one of those allowed."""
    named = described["type"]
    kind = _TYPES[named]
    inner = _TYPES[described["items"]["type"]] if kind is list else None
    if named == "float" and type(value) is int:
        value = float(value)
    listed = _type_of(allowed)
    as_it_is = listed not in (None, kind)
    if type(value) is not kind:
        return type(value) is listed and value in allowed
    if inner is not None and not any(_holds(one, value, inner) for one in allowed):
        return False
    if as_it_is:
        return value in allowed
    return _is_one_of(value, allowed, inner)


def _is_one_of(value: Any, allowed: Sequence[Any], inner: type | None) -> bool:
    """Return whether a value of the function's own type is one of those allowed."""
    if isinstance(value, dict):
        return _is_object(value, allowed)
    if inner is dict:
        return any(
            len(one) == len(value) and all(map(_is_object, value, ([each] for each in one)))
            for one in allowed
        )
    if isinstance(value, list):
        return _bare_items(value) in map(_bare_items, allowed)
    return _bare(value) in map(_bare, allowed)


def _type_of(values: Sequence[Any]) -> type | None:
    """Return the type of the first value that says one."""
    return next((type(one) for one in values if one != _LEFT_OUT), None)


def _holds(allowed: Any, items: Sequence[Any], kind: type) -> bool:
    """Return whether the items of a list have the type declared, or that of an expected list."""
    if not isinstance(allowed, list):
        return True
    listed = _type_of(allowed)
    return all(type(item) is kind or type(item) is listed for item in items)


def _is_object(value: Any, allowed: Sequence[Any]) -> bool:
    return isinstance(value, dict) and any(
        value.keys() <= one.keys()
        and all(_bare(each) in map(_bare, one[key]) for key, each in value.items())
        and all(key in value or _LEFT_OUT in listed for key, listed in one.items())
        for one in allowed
        if one != _LEFT_OUT
    )


def _bare_items(values: Sequence[Any]) -> list[Any]:
    return [_bare(one) for one in values]


def _bare(value: Any) -> Any:
    """Return a text without what does not count; anything else as it is."""
    return value.translate(_IGNORED).lower() if isinstance(value, str) else value
