"""The APIs that every door speaks."""

from __future__ import annotations

from collections.abc import Sequence

from causerie.shapes.chat_completions.reader import CHAT_COMPLETIONS
from causerie.shapes.messages.reader import MESSAGES
from causerie.shapes.passed_through import PASSED_THROUGH
from causerie.shapes.responses.reader import RESPONSES
from causerie.shapes.shape import Shape

SHAPES: Sequence[Shape] = (CHAT_COMPLETIONS, RESPONSES, MESSAGES, *PASSED_THROUGH)


def shape_of(path: str) -> Shape:
    """Return the API whose operation a request path belongs to, else chat completions."""
    # Above is the base URL of a door, below may be the name of a model, and either is any text.
    below = f"/{path.split('/v1/', 1)[-1]}/".partition("/models/")[0]
    return next((one for one in SHAPES if f"{one.path}/" in below), CHAT_COMPLETIONS)
