"""All formats, and which of them a template is of.

Nothing but the text of the template is looked at. The order matters: a format
stands before those whose signs its templates have as well.
"""

from __future__ import annotations

from causerie.chat.formats import (
    beam,
    coder,
    cohere,
    deepseek,
    ernie,
    gemma,
    glm,
    granite,
    harmony,
    hermes,
    hunyuan,
    inkling,
    intern,
    kimi,
    lfm,
    llama,
    longcat,
    minimax,
    mistral,
    muse,
    nemotron,
    others,
    pythonic,
    qwen,
    step,
)
from causerie.chat.formats.format import ModelFormat
from causerie.chat.formats.generic import GENERIC, GENERIC_THINKING
from causerie.chat.formats.headless import with_headless

_DECLARED: tuple[ModelFormat, ...] = (
    *beam.FORMATS,
    *harmony.FORMATS,
    *kimi.FORMATS,
    *step.FORMATS,
    *deepseek.FORMATS,
    *minimax.FORMATS,
    *gemma.FORMATS,
    *cohere.FORMATS,
    *mistral.FORMATS,
    *hunyuan.FORMATS,
    *muse.FORMATS,
    *inkling.FORMATS,
    *others.FORMATS,
    *ernie.FORMATS,
    *granite.FORMATS,
    *longcat.FORMATS,
    *intern.FORMATS,
    *nemotron.FORMATS,
    *lfm.FORMATS,
    *pythonic.FORMATS,
    *glm.FORMATS,
    *coder.FORMATS,
    *llama.FORMATS,
    *hermes.FORMATS[:-1],
    *qwen.FORMATS,
    hermes.HERMES,
    GENERIC_THINKING,
    GENERIC,
)
FORMATS = tuple(map(with_headless, _DECLARED))


def detect(template: str) -> ModelFormat:
    """Return the format that a chat template belongs to; the fallback if none matches."""
    for form in FORMATS:
        if any(all(sign in template for sign in signs) for signs in form.detect):
            return form
    return GENERIC


def by_name(name: str) -> ModelFormat:
    """Return the format of that name; raise :class:`ValueError` that lists the names."""
    for form in FORMATS:
        if form.name == name:
            return form
    names = ", ".join(form.name for form in FORMATS)
    raise ValueError(f"There is no format {name!r}; these are: {names}.")
