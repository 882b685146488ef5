"""Text that a message has before its calls, for templates that show only the calls.

The text is removed, the calls are rendered with a unique mark, and the text is
inserted in front of them, where the model wrote it. Knows the origins of a
prompt's characters and nothing of templates.
"""

from __future__ import annotations

from collections.abc import Sequence

from causerie.chat.formats.format import ModelFormat
from causerie.chat.history import content_text
from causerie.chat.taint import FINAL, Traced, authored, joined, origin_of
from causerie.chat.template_capabilities import Entry, TemplateCapabilities

_MARKS = 250  # kinds of marks, taken in turn: a call may be shown again with its result


def taken_out(
    conversation: Sequence[Entry], form: ModelFormat, capabilities: TemplateCapabilities
) -> tuple[list[Entry], list[Traced]]:
    """The messages, those with calls without their texts, and these as the model wrote them."""
    left: list[Entry] = []
    texts: list[Traced] = []
    for entry in conversation:
        calls = entry.get("tool_calls")
        if isinstance(calls, list) and entry["content"]:
            first = _marked(calls[0], _mark(len(texts)))
            opened, closed = (
                form.said_open or form.answer_open,
                form.said_close or form.answer_close,
            )
            said = content_text(entry["content"])
            texts.append(joined((authored(opened), said, authored(closed))))
            entry = {**entry, "content": capabilities.no_content, "tool_calls": [first, *calls[1:]]}
        left.append(entry)
    return left, texts


def put_back(prompt: Traced, texts: Sequence[Traced], begin: str) -> Traced:
    """Return the prompt with each text in front of its calls, which begin with ``begin``.

    If that is empty, they begin with the names of their functions.
    """
    origin = origin_of(prompt)
    parts: list[str] = []
    done = at = 0
    for index, text in enumerate(texts):
        call = origin.find(_mark(index), at)
        start = prompt.rfind(begin, done, call) if call >= 0 else call
        while start >= 0 and any(origin[start : start + len(begin)]):
            start = prompt.rfind(begin, done, start)
        if start >= 0:
            parts += (prompt[done:start], text)
            done, at = start, call
    return joined((*parts, prompt[done:]))


def _mark(index: int) -> int:
    return FINAL + 1 + index % _MARKS


def _marked(call: Entry, mark: int) -> Entry:
    function = call["function"]
    assert isinstance(function, dict)
    name = Traced(function["name"], mark)
    return {**call, "id": Traced(str(call["id"]), mark), "function": {**function, "name": name}}
