"""Loads all formats from ``formats.toml``, and finds the one that a template belongs to."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from msgspec import convert, structs

from causerie.chat.formats import format as forms
from causerie.chat.formats.format import CallSection, Literal, ModelFormat, Name, ParameterList

# Models leave out the first marker of a section of calls at times. Then only a marker of the first
# call, or an offered function's name with a marker behind it, tells the section from text.


def with_headless(form: ModelFormat) -> ModelFormat:
    """Return the format, extended to read its section of calls also without first markers."""
    calls, found = form.calls, list[CallSection]()
    first, second = calls.call[:2]
    if form.header is not None or calls.at_start or not isinstance(first, Literal):
        return form
    if calls.begin.strip() and first.text[:1] in ("<", "]"):
        found.append(_copy_section_without_begin(calls, first.text.rstrip()))
    between_markers = first.text[0] in "<[" and first.text[-1] in ">]"
    if between_markers and isinstance(second, Name) and _is_first_nonblank_a_marker(calls.call[2:]):
        found.append(_copy_section_without_begin(structs.replace(calls, call=calls.call[1:])))
    return structs.replace(form, calls=structs.replace(calls, also=(*calls.also, *found)))


def _is_first_nonblank_a_marker(segments: Sequence[object]) -> bool:
    first, *others = segments
    if isinstance(first, ParameterList):
        return True
    if not isinstance(first, Literal):
        return False
    return first.text[0] in "<[" if first.text.strip() else _is_first_nonblank_a_marker(others)


def _copy_section_without_begin(section: CallSection, *triggers: str) -> CallSection:
    return structs.replace(
        section, begin="", optional_end=True, triggers=triggers, lead_ins=(), lead="", also=()
    )


# What the tables say, as values of ``format.py``.

_Table = Mapping[str, Any]
_SWITCHED = forms.ThinkingSwitch(on={"enable_thinking": True}, off={"enable_thinking": False})
_SWITCHES = {
    "on": _SWITCHED,
    "off": structs.replace(_SWITCHED, default="off"),
    "always": forms.ThinkingSwitch(mandatory=True),
}
_UNSPACED = {"after_open": "", "before_close": "", "after_close": ""}


def _expand_reasoning_table(table: _Table) -> _Table:
    fields = {key: of for key, of in table.items() if key != "spaced"}
    return fields if table.get("spaced", True) else {**_UNSPACED, **fields}


def _expand_thinking(word_or_table: _Table | str) -> _Table | forms.ThinkingSwitch:
    return _SWITCHES[word_or_table] if isinstance(word_or_table, str) else word_or_table


def _expand_header_table(table: _Table) -> _Table:
    return {**table, "call": _expand_calls_table(table["call"])} if "call" in table else table


def _expand_calls_table(table: _Table) -> _Table:
    call = [table["call"]] if isinstance(table["call"], str) else table["call"]
    parts = forms.segments(
        *(part if isinstance(part, str) else _build_segment(part) for part in call)
    )
    return {**table, "call": parts, "also": [*map(_expand_calls_table, table.get("also", ()))]}


def _build_segment(table: _Table) -> forms.Segment:
    match table:
        case {"either": lists}:
            first, *also = map("".join, product(*lists))
            return Literal(first, tuple(also))
        case {"id": pattern, **others}:
            return forms.CallId(pattern, **others)
        case {"mark": mark}:
            return forms.ElementArguments(mark)
        case {"quote": quote}:
            return forms.LooseArguments(quote)
        case _:
            return convert(table, ParameterList)


_SHORT_FORMS = {
    "reasoning": _expand_reasoning_table,
    "thinking": _expand_thinking,
    "calls": _expand_calls_table,
    "header": _expand_header_table,
}
_FILE = tomllib.loads(Path(__file__).with_name("formats.toml").read_text("utf-8"))
_TABLES: Mapping[str, _Table] = {table["name"]: table for table in _FILE["formats"]}


def _merge_base_table(table: _Table) -> _Table:
    if "like" not in table:
        return table
    base = _merge_base_table(_TABLES[table["like"]])
    both = [key for key in ("reasoning", "calls") if key in base and key in table]
    return {**base, **table, **{key: {**base[key], **table[key]} for key in both}}


def _build_format(table: _Table) -> ModelFormat:
    fields = {
        key: _SHORT_FORMS[key](of) if key in _SHORT_FORMS else of
        for key, of in _merge_base_table(table).items()
        if key not in ("like", "signs", "or_signs")
    }
    return with_headless(convert(fields, ModelFormat))


_BY_NAME = {name: _build_format(table) for name, table in _TABLES.items()}
_SIGNS = [
    (name, signs)
    for name, table in _TABLES.items()
    for signs in (table["signs"], table.get("or_signs"))
    if signs is not None
]
FORMATS = tuple(_BY_NAME.values())


def detect(template: str) -> ModelFormat:
    """Return the format that a chat template belongs to; the fallback if none matches."""
    return next(_BY_NAME[name] for name, signs in _SIGNS if all(sign in template for sign in signs))


def by_name(name: str) -> ModelFormat:
    """Return the format of that name; raise :class:`ValueError` that lists the names."""
    if name not in _BY_NAME:
        raise ValueError(f"There is no format {name!r}; these are: {', '.join(_BY_NAME)}.")
    return _BY_NAME[name]
