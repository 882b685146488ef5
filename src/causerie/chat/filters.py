"""The filters and tests that a chat template may use, each counted before it makes anything.

Jinja's own, but for those that lose who wrote a text or that other servers
define in another way. One that is not in the table does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any

from jinja2 import Environment, pass_environment
from jinja2.filters import FILTERS as OF_JINJA
from jinja2.filters import make_attrgetter
from jinja2.tests import TESTS as TESTS_OF_JINJA

from causerie.chat.arguments import write_json
from causerie.chat.budget import ELEMENT, POINTER, TooMuch, compared, current_budget, paced, text_of
from causerie.chat.taint import USER, Traced
from causerie.chat.widening import charge_formatted, charge_method

_MOST_DIGITS = 1000  # of a text that is read as a number
_MOST_PLACES = 300  # that a number is rounded to

Function = Callable[..., Any]


def _charging(function: Function, charge: Function) -> Function:
    """Return the function with its value charged, and changed, by ``charge``."""
    at = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def charged(*args: Any, **kwargs: Any) -> Any:
        value = charge(args[at], *args[at + 1 :], **kwargs)
        return function(*args[:at], value, *args[at + 1 :], **kwargs)

    return charged


def _text(growth: int) -> Function:
    """Charge a text that becomes so many times as long at most."""

    def charge(value: object, *_: object, **__: object) -> str:
        text = text_of(value)
        current_budget.get().make(len(text) * growth)
        return text

    return charge


def _deep(value: Any, *_: object, **__: object) -> Any:
    """Charge a collection all of which is looked at, or printed."""
    kept = value if hasattr(value, "__len__") else _list(value)
    return compared(kept)


def _printed(value: Any, *_: object, **__: object) -> Any:
    """Charge a value that is printed with much around each of its parts."""
    current_budget.get().weigh(value, each=2 * ELEMENT)
    return value


def _lazily(value: Any, *_: object, **__: object) -> Any:
    return paced(value) if value else value


def _centered(value: object, width: int = 80) -> str:
    text = text_of(value)
    current_budget.get().make(max(len(text), int(width)))
    return text


def _indented(value: object, width: int | str = 4, *_: object, **__: object) -> str:
    text = text_of(value)
    deep = len(width) if isinstance(width, str) else max(int(width), 0)
    current_budget.get().make(len(text) + (len(text.splitlines()) + 1) * deep)
    return text


def _wrapped(
    value: object,
    width: int = 79,
    break_long_words: bool = True,
    wrapstring: str | None = None,
    *_: object,
    **__: object,
) -> str:
    text = text_of(value)
    current_budget.get().make(len(text) * (1 + len(wrapstring or "\n")))
    return text


def _linked(value: object, *args: object, **kwargs: object) -> str:
    text = text_of(value)
    given = sum(len(each) for each in (*args, *kwargs.values()) if isinstance(each, str))
    current_budget.get().make(len(text) * (2 * ELEMENT + given))
    return text


def _in_batches(value: Any, linecount: int, *_: object, **__: object) -> Any:
    current_budget.get().make(max(int(linecount), 0) * POINTER)
    return paced(value)


def _in_slices(value: Any, slices: int, *_: object, **__: object) -> Any:
    current_budget.get().make(max(int(slices), 0) * ELEMENT)
    return _list(value)


def _number(value: Any, *_: object, **__: object) -> Any:
    """Return the value, or an empty text for a text that is too long for a number."""
    return "" if isinstance(value, str) and len(value) > _MOST_DIGITS else value


def _rounded(value: Any, precision: int = 0, *_: object, **__: object) -> Any:
    if abs(precision) > _MOST_PLACES:
        raise TooMuch(f"it rounds to more than {_MOST_PLACES} places")
    return value


def _list(value: Any) -> list[Any]:
    """``list``: one that is not one yet is made item by item."""
    if isinstance(value, list | tuple):
        current_budget.get().make(len(value) * POINTER)
    elif isinstance(value, str):
        current_budget.get().make(len(value) * ELEMENT)
    return list(value if hasattr(value, "__len__") else paced(value))


def _replace(value: object, old: object, new: object, count: int | None = None) -> str:
    """Apply ``replace``, keeping origins."""
    text, most = text_of(value), -1 if count is None else count
    args = (text_of(old), text_of(new), most)
    charge_method(current_budget.get(), text, "replace", args, {})
    return text.replace(*args)


def _format(value: object, *args: object, **kwargs: object) -> str:
    """Apply ``format``: the operator ``%``."""
    pattern, values = text_of(value), kwargs or args
    charge_formatted(current_budget.get(), pattern, values)
    return pattern % values


@pass_environment
def _sum(
    environment: Environment,
    value: Iterable[Any],
    attribute: str | int | None = None,
    start: Any = 0,
) -> Any:
    """``sum``, one counted addition after the other."""
    if attribute is not None:
        value = map(make_attrgetter(environment, attribute), value)
    for item in paced(value):
        start = environment.call_binop(None, "+", start, item)  # type: ignore[attr-defined]  # the sandbox's
    return start


@pass_environment
def _join(
    environment: Environment, value: Iterable[Any], d: str = "", attribute: str | int | None = None
) -> str:
    """Apply ``join``, keeping origins."""
    if attribute is not None:
        value = map(make_attrgetter(environment, attribute), value)
    separator = d if isinstance(d, Traced) else Traced(text_of(d), USER)
    parts = [text_of(item) for item in paced(value)]
    charge_method(current_budget.get(), separator, "join", (parts,), {})
    return separator.join(parts)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """``tojson`` with the arguments, in the order, that Hugging Face templates give."""
    deeper = len(indent) if isinstance(indent, str) else max(indent or 0, 0)
    around = 8 + sum(map(len, separators or ()))
    current_budget.get().weigh(value, each=around, deeper=deeper)
    return Traced(
        write_json(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        ),
        USER,
    )


def _same(value: object) -> object:
    """``safe`` means nothing where nothing is escaped."""
    return value


_CHARGES: Mapping[str, Function] = {
    **dict.fromkeys(["capitalize", "lower", "title", "trim", "upper"], _text(1)),
    **dict.fromkeys(["string", "striptags", "truncate", "wordcount"], _text(1)),
    **dict.fromkeys(["e", "escape", "forceescape"], _text(6)),
    **dict.fromkeys(["dictsort", "groupby", "max", "min", "sort", "unique"], _deep),
    **dict.fromkeys(["pprint", "urlencode", "xmlattr"], _printed),
    **dict.fromkeys(["map", "reject", "rejectattr", "select", "selectattr"], _lazily),
    "batch": _in_batches,
    "center": _centered,
    "indent": _indented,
    "int": _number,
    "float": _number,
    "reverse": lambda value: _text(1)(value) if isinstance(value, str) else _list(value),
    "round": _rounded,
    "slice": _in_slices,
    "urlize": _linked,
    "wordwrap": _wrapped,
}
_FREE = "abs attr count d default filesizeformat first items last length random"

FILTERS: Mapping[str, Function] = {
    **{name: OF_JINJA[name] for name in _FREE.split()},
    **{
        name: _charging(OF_JINJA[name], charge)
        for name, charge in _CHARGES.items()
        if name in OF_JINJA
    },
    "format": _format,
    "join": _join,
    "list": _list,
    "checkpoint": paced,
    "replace": _replace,
    "safe": _same,
    "sum": _sum,
    "tojson": _tojson,
}


def _comparing(test: Function) -> Function:
    def counted(value: Any, *others: Any) -> Any:
        return test(compared(value), *map(compared, others))

    return counted


_COMPARING = "!= < <= == > >= eq equalto ge greaterthan gt in le lessthan lt ne"
_PLAIN = """boolean callable defined divisibleby escaped even false filter float integer iterable
mapping none number odd sameas sequence string test true undefined"""

_GIVEN: Mapping[str, Function] = dict(TESTS_OF_JINJA)  # type: ignore[arg-type]  # many signatures

TESTS: Mapping[str, Function] = {
    **{name: _GIVEN[name] for name in _PLAIN.split()},
    **{name: _comparing(_GIVEN[name]) for name in _COMPARING.split()},
    **{name: _charging(_GIVEN[name], _text(1)) for name in ("lower", "upper")},
}
