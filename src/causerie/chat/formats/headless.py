"""Sections of calls without their first marker, which models leave out at times.

Only what is left tells such a section from text: a marker of the first call, or the name of an
offered function with a marker behind it. Calls as JSON have none of these:
:mod:`causerie.chat.call_syntax.unmarked` reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from causerie.chat.formats.format import (
    CallSection,
    Literal,
    ModelFormat,
    Name,
    ParameterList,
    Segment,
)


def with_headless(form: ModelFormat) -> ModelFormat:
    """Return the format, which also reads its section of calls without the first markers."""
    calls = form.calls
    if calls is None or form.header is not None:
        return form
    found = [each for each in (_headless(calls), _named(calls)) if each is not None]
    return replace(form, calls=replace(calls, also=(*calls.also, *found))) if found else form


def _headless(calls: CallSection) -> CallSection | None:
    first = calls.call[0]
    if not calls.begin.strip() or calls.at_start:
        return None
    if not isinstance(first, Literal) or first.text[:1] not in ("<", "]"):
        return None
    return _beginning(calls, first.text.rstrip())


def _named(calls: CallSection) -> CallSection | None:
    """Return the section whose first call has lost the marker before its name."""
    first, name, *others = calls.call
    if calls.at_start or not isinstance(first, Literal) or not isinstance(name, Name):
        return None
    if first.text[0] not in "<[" or first.text[-1] not in ">]" or not _is_marked(others):
        return None
    return _beginning(replace(calls, call=calls.call[1:]))


def _is_marked(segments: Sequence[Segment]) -> bool:
    """Return whether a marker follows, or parameters that begin with one."""
    first, *others = segments
    if isinstance(first, ParameterList):
        return True
    if not isinstance(first, Literal):
        return False
    return first.text[0] in "<[" if first.text.strip() else _is_marked(others)


def _beginning(calls: CallSection, *triggers: str) -> CallSection:
    return replace(
        calls, begin="", optional_end=True, triggers=triggers, lead_ins=(), lead="", also=()
    )
