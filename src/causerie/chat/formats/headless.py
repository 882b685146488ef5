"""Sections of calls without their first marker, which models leave out at times.

Only what is left tells such a section from text, so that the first call has to begin with a marker
of its own. Calls as JSON have none: :mod:`causerie.chat.call_syntax.unmarked` reads these.
"""

from __future__ import annotations

from dataclasses import replace

from causerie.chat.formats.format import CallSection, Literal, ModelFormat


def with_headless(form: ModelFormat) -> ModelFormat:
    """Return the format, which also reads its section of calls without ``begin``."""
    calls = form.calls
    section = _headless(calls) if calls else None
    if calls is None or section is None:
        return form
    return replace(form, calls=replace(calls, also=(*calls.also, section)))


def _headless(calls: CallSection) -> CallSection | None:
    first = calls.call[0]
    if not calls.begin.strip() or calls.at_start:
        return None
    if not isinstance(first, Literal) or first.text[:1] not in ("<", "]"):
        return None
    return replace(
        calls, begin="", optional_end=True, triggers=(first.text.rstrip(),), lead_ins=(), lead=""
    )
