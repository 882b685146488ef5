"""All questions, in the order in which they are asked: rows of ``questions.toml`` with scripts."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from causerie.probe.question import SCRIPTS, ProbeQuestion
from causerie.probe.questions import listing, output, requests, sampling  # noqa: F401 - scripts
from causerie.protocol.parameters import SAMPLING

_TABLE = Path(__file__).with_name("questions.toml")


def _build_questions(row: dict[str, Any]) -> Iterator[ProbeQuestion]:
    name, given, effect = row.pop("script", row["id"]), row.pop("with", {}), row.pop("effect", None)
    if effect is None:
        decides = tuple(row.pop("decides", ()))
        yield ProbeQuestion(**row, decides=decides, script=partial(SCRIPTS[name], **given))
        return
    for parameter in SAMPLING:
        if parameter.facts.effect == effect and (value := parameter.facts.visible_at) is not None:
            script = partial(SCRIPTS[effect], name=parameter.name, value=value)
            facts = {**row, "id": parameter.name, "decides": (parameter.name,)}
            facts["words"] = row["words"].replace("NAME", parameter.name)
            yield ProbeQuestion(**facts, script=script)


QUESTIONS: tuple[ProbeQuestion, ...] = tuple(
    question
    for row in tomllib.loads(_TABLE.read_text("utf-8"))["questions"]
    for question in _build_questions(row)
)
QUICK_QUESTIONS: tuple[ProbeQuestion, ...] = tuple(one for one in QUESTIONS if one.quick)
"""What decides whether usual clients work; a minute is enough for a server on this machine."""
