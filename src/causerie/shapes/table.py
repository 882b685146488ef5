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
    """Return the API whose operation a path ends with, else chat completions."""
    for shape in SHAPES:
        if path.endswith(shape.path) or (shape.counting and path.endswith(shape.counting)):
            return shape
    return CHAT_COMPLETIONS
