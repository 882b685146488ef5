"""Size of the result of an operator or a method, computed before the result is created.

A template may call only the methods listed here: a new version of the language
adds methods, and each of them may create larger values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, ItemsView, KeysView, Mapping, ValuesView
from functools import lru_cache
from types import GeneratorType
from typing import Any

from jinja2.exceptions import SecurityError

from causerie.chat.arguments import Verbatim
from causerie.chat.budget import ELEMENT, POINTER, RenderBudget, TooMuch, paced

_BITS = 4096  # of a number that is worked with
_DIRECTIVE = re.compile(
    r"%(?:\([^()]*\))?[#0\- +]*(?P<width>\*|[0-9]*)(?:\.(?P<precision>\*|[0-9]*))?[hlL]?(?s:.)"
)
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"

_READING = "count endswith find index isalnum isalpha isascii isdecimal isdigit isidentifier"
_TEXT = f"""{_READING} islower isnumeric isprintable isspace istitle isupper rfind rindex
startswith capitalize casefold center encode expandtabs format format_map join ljust lower lstrip
partition removeprefix removesuffix replace rjust rpartition rsplit rstrip split splitlines strip
swapcase title upper zfill"""
_LIST = "append clear copy count extend index insert pop remove reverse sort"
_DICT = "clear copy get items keys pop popitem setdefault update values"

# Attributes of what has a type of the language; whatever has another is the sandbox's own.
_ATTRIBUTES: tuple[tuple[type | tuple[type, ...], frozenset[str]], ...] = (
    (Verbatim, frozenset(f"source {_LIST} {_DICT} is_integer".split())),
    (str, frozenset(_TEXT.split())),
    (bytes, frozenset(["decode"])),
    (list, frozenset(_LIST.split())),
    (dict, frozenset(_DICT.split())),
    (tuple, frozenset(["count", "index"])),
    ((int, float, complex), frozenset(["bit_length", "imag", "is_integer", "real"])),
    ((range, set, frozenset, KeysView, ValuesView, ItemsView, GeneratorType), frozenset()),
)
_TAKES_ITEMS = frozenset({"extend", "join", "update"})


def is_known_attribute(owner: object, name: str) -> bool:
    """Return whether a template may use this attribute; true for the sandbox's own objects."""
    names = _attributes(type(owner))  # type: ignore[arg-type] # a class is hashable
    return names is None or name in names


@lru_cache(maxsize=256)
def _attributes(kind: type) -> frozenset[str] | None:
    return next((names for known, names in _ATTRIBUTES if issubclass(kind, known)), None)


def charge_operator(budget: RenderBudget, operator: str, left: Any, right: Any) -> None:
    """Count the result of a binary operator, or refuse it."""
    if operator == "+":
        _charge_sum(budget, left, right)
    elif operator == "*":
        _charge_product(budget, left, right)
    elif operator == "%" and isinstance(left, str):
        charge_formatted(budget, left, right)
        return
    elif operator == "%" and isinstance(left, bytes):
        raise SecurityError("`%` of bytes")
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() * max(right, 1))
    for number in (left, right):
        if isinstance(number, int):
            _check_bits(number.bit_length())


def charge_method(
    budget: RenderBudget, owner: object, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Count the result of a method; returns the arguments to call it with."""
    if name in _TAKES_ITEMS and args and not hasattr(args[0], "__len__"):
        args = (list(paced(args[0])), *args[1:])
    if isinstance(owner, str | bytes):
        _TEXT_COSTS.get(name, _same_length)(budget, owner, *args, **kwargs)
    elif isinstance(owner, list | dict):
        _charge_change(budget, owner, name, args, kwargs)
    return args


def charge_formatted(budget: RenderBudget, pattern: str, values: Any) -> None:
    """Count ``pattern % values``."""
    size, directives, at = len(pattern), 0, pattern.find("%")
    stars = [abs(v) for v in values if isinstance(v, int)] if isinstance(values, tuple) else []
    while at >= 0:
        found = _DIRECTIVE.match(pattern, at)
        if found is None:
            raise ValueError("incomplete format")
        directives += 1
        for part in (found["width"], found["precision"]):
            size += max(stars, default=0) if part == "*" else int((part or "0")[:20])
        at = pattern.find("%", found.end())
    budget.make(size)
    weight = budget.weigh(values)
    if isinstance(values, Mapping):  # each may be named many times
        budget.make(weight * directives)


def _charge_sum(budget: RenderBudget, left: Any, right: Any) -> None:
    if isinstance(left, str | bytes) and isinstance(right, str | bytes):
        budget.make(len(left) + len(right))
    elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
        budget.make((len(left) + len(right)) * POINTER)


def _charge_product(budget: RenderBudget, left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())
        return
    for many, count in ((left, right), (right, left)):
        if isinstance(count, int) and isinstance(many, str | bytes):
            budget.make(len(many) * max(count, 0))
        elif isinstance(count, int) and isinstance(many, list | tuple):
            budget.make(len(many) * max(count, 0) * POINTER)


def _check_bits(bits: int) -> None:
    if bits > _BITS:
        raise TooMuch(f"it makes a number of more than {_BITS} bits")


def _charge_change(
    budget: RenderBudget,
    owner: list[Any] | dict[Any, Any],
    name: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> None:
    """Count what a list or a dictionary grows by, or what a look through it takes."""
    match name:
        case "append" | "insert" | "setdefault":
            budget.pass_over(ELEMENT)
        case "extend" | "update":
            more = len(args[0]) if args and hasattr(args[0], "__len__") else 1
            budget.make((more + len(kwargs)) * ELEMENT)
        case "copy":
            budget.make(len(owner) * POINTER)
        case "sort":
            if kwargs.get("key") is not None:
                raise SecurityError("`sort` with a key; the filter `sort(attribute=…)` does that")
            budget.weigh(owner)
        case "index" | "count" | "remove":
            budget.weigh(owner)


def _same_length(budget: RenderBudget, text: str, *_: object, **__: object) -> None:
    budget.make(len(text))


def _nothing(budget: RenderBudget, text: str, *_: object, **__: object) -> None:
    """Count nothing: it looks at an end of the text, or counts its pieces itself."""


def _padded(budget: RenderBudget, text: str, width: int, *_: object) -> None:
    budget.make(max(len(text), int(width)))


def _tabs_expanded(budget: RenderBudget, text: str, tabsize: int = 8) -> None:
    budget.make(len(text) + text.count("\t") * max(int(tabsize), 0))


def _replaced(budget: RenderBudget, text: str, old: str, new: str, count: int = -1) -> None:
    places = text.count(old) if old else len(text) + 1
    if count >= 0:
        places = min(places, count)
    budget.make(len(text) + places * max(len(new) - len(old), 0))
    budget.pass_over(places * ELEMENT)


def _split(budget: RenderBudget, text: str, sep: str | None = None, maxsplit: int = -1) -> None:
    places = text.count(sep) if sep else len(text) // 2
    if maxsplit >= 0:
        places = min(places, maxsplit)
    budget.make(len(text))
    budget.pass_over((places + 1) * ELEMENT)


def _split_lines(budget: RenderBudget, text: str, *_: object, **__: object) -> None:
    budget.make(len(text))
    budget.pass_over((sum(map(text.count, _LINE_ENDS)) + 1) * ELEMENT)


def _joined(budget: RenderBudget, text: str, items: Any) -> None:
    sizes = [len(item) for item in items if isinstance(item, str)]
    budget.make(sum(sizes) + len(text) * len(items))


_TEXT_COSTS: Mapping[str, Callable[..., None]] = {
    "startswith": _nothing,
    "endswith": _nothing,
    "format": _nothing,
    "format_map": _nothing,
    "center": _padded,
    "ljust": _padded,
    "rjust": _padded,
    "zfill": _padded,
    "expandtabs": _tabs_expanded,
    "replace": _replaced,
    "split": _split,
    "rsplit": _split,
    "splitlines": _split_lines,
    "join": _joined,
}
