"""Templates rendered where a test that goes wrong can be killed, and their costs told."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from causerie.chat import template as rendering
from causerie.chat.budget import RenderBudget, RenderLimits, TooMuch
from causerie.chat.template import ChatTemplate
from causerie.chat.worker_process import FRAME, limit_memory, serve
from causerie.errors import InvalidRequest

SMALL = {"turns": 20_000, "characters": 20_000, "made": 400_000}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a rendering: ``text``, ``refused`` or ``too much``, and its counts."""

    kind: str
    words: str
    turns: int
    made: int
    user: list[list[int]] = field(default_factory=list)


class Bench:
    """A process with little memory, started when first asked. Raises where it dies or hangs."""

    def __init__(self, seconds: float = 60.0) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None

    def render(self, source: str, **asked: Any) -> Outcome:
        """The outcome of a template; ``limits`` and ``kwargs`` as they are called elsewhere."""
        process = self._started()
        body = json.dumps({"source": source, **asked}).encode()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(FRAME.pack(len(body)) + body)
        process.stdin.flush()
        head = process.stdout.read(FRAME.size)
        assert len(head) == FRAME.size, f"the process died of {source!r} with {asked}"
        told = json.loads(process.stdout.read(FRAME.unpack(head)[0]))
        return Outcome(**told)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__)), str(self._seconds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        return self._process


def _answer(body: bytes) -> bytes:
    asked = json.loads(body)
    limits = RenderLimits(**asked.get("limits", {}))
    budget = RenderBudget(limits)
    rendering.RenderBudget = lambda _: budget  # type: ignore[misc,assignment]  # replaced
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))  # which ends the process
    try:
        template = ChatTemplate(asked["source"], bos_token="<s>", eos_token="</s>", limits=limits)
        done = template.render(asked.get("messages", []), kwargs=asked.get("kwargs", {}))
        kind, words, user = "text", done.text, [list(span) for span in done.user]
    except TooMuch as much:
        kind, words, user = "too much", str(much), []
    except (InvalidRequest, ValueError) as refused:
        kind, words, user = "refused", str(refused), []
    told = {"kind": kind, "words": words, "turns": budget.turns, "made": budget.made, "user": user}
    return json.dumps(told).encode()


if __name__ == "__main__":
    import signal

    limit_memory(1 << 29)
    serve(sys.stdin.buffer, sys.stdout.buffer, _answer)
