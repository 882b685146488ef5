"""A message that has only reasoning is continued in its reasoning, whatever the template shows."""

from __future__ import annotations

import os
from pathlib import Path

from casekit import each_of

from causerie.chat.formats.registry import by_name, detect
from causerie.chat.plan import reasoning_state
from causerie.chat.prompt import render
from causerie.chat.template import ChatTemplate
from causerie.chat.thinking import ThinkingPlan
from causerie.protocol.request import ChatRequest, Message

_OWN = sorted((Path(__file__).parents[1] / "templates").glob("*.jinja"))
_FOLDER = os.environ.get("CAUSERIE_TEMPLATES", "")
_NOT_WITHOUT = {"fireworks-ai-llama-3-firefunction-v2"}  # a list of functions of its own making
_REAL = [
    path
    for path in (sorted(Path(_FOLDER).glob("*.jinja")) if _FOLDER else [])
    if path.stem not in _NOT_WITHOUT
]


@each_of("path", [*_OWN, *_REAL], ids=lambda path: path.stem)
def test_reasoning_alone_is_continued(path: Path) -> None:
    template = ChatTemplate(path.read_text(), bos_token="<BOS>", eos_token="<EOS>")
    form = by_name(path.stem) if path in _OWN else detect(template.source)
    messages = (
        Message("user", "Hi"),
        Message("assistant", "Hello"),
        Message("user", "Why?"),
        Message("assistant", "", reasoning_content="Let me thi"),
    )
    asked = ChatRequest("", messages, continue_final_message=True)
    rendered = render(template, form, asked, thinking_on=None, effort=None)
    assert rendered.text.endswith("Let me thi")
    assert rendered.text.count("Let me thi") == 1
    start, stop = rendered.user[-1]
    assert rendered.text[start:stop].endswith("Let me thi")
    assert stop == len(rendered.text)
    before = rendered.text[:start].rstrip()
    assert before.endswith((form.reasoning.open, *form.reasoning.also_open))
    assert not before.removesuffix(form.reasoning.open).rstrip().endswith(form.reasoning.open)
    unasked = ThinkingPlan(None, None, written=False)
    assert reasoning_state(rendered, form, unasked, True) == "open"
