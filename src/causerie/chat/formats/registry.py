"""All formats, and which of them a template is of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from causerie.chat.formats import channels, deepseek, hermes, llama, others, parameters
from causerie.chat.formats.format import (
    CallSection,
    Literal,
    ModelFormat,
    Name,
    ParameterList,
    Segment,
)
from causerie.chat.formats.hermes import GENERIC, GENERIC_THINKING

# Models leave out the first marker of a section of calls at times. Then only a marker of the first
# call, or an offered function's name with a marker behind it, tells the section from text.


def with_headless(form: ModelFormat) -> ModelFormat:
    """Return the format, which also reads its section of calls without the first markers."""
    calls = form.calls
    if calls is None or form.header is not None:
        return form
    found = [each for each in (_headless(calls), _without_first_marker(calls)) if each is not None]
    return replace(form, calls=replace(calls, also=(*calls.also, *found))) if found else form


def _headless(calls: CallSection) -> CallSection | None:
    first = calls.call[0]
    if not calls.begin.strip() or calls.at_start:
        return None
    if not isinstance(first, Literal) or first.text[:1] not in ("<", "]"):
        return None
    return _beginning(calls, first.text.rstrip())


def _without_first_marker(calls: CallSection) -> CallSection | None:
    first, name, *others = calls.call
    if calls.at_start or not isinstance(first, Literal) or not isinstance(name, Name):
        return None
    if first.text[0] not in "<[" or first.text[-1] not in ">]" or not _begins_with_marker(others):
        return None
    return _beginning(replace(calls, call=calls.call[1:]))


def _begins_with_marker(segments: Sequence[Segment]) -> bool:
    first, *others = segments
    if isinstance(first, ParameterList):
        return True
    if not isinstance(first, Literal):
        return False
    return first.text[0] in "<[" if first.text.strip() else _begins_with_marker(others)


def _beginning(calls: CallSection, *triggers: str) -> CallSection:
    return replace(
        calls, begin="", optional_end=True, triggers=triggers, lead_ins=(), lead="", also=()
    )


# The order matters: a format stands before those whose signs its templates have as well.

_DECLARED: tuple[ModelFormat, ...] = (
    channels.BEAM,
    *channels.HARMONY_FORMATS,
    *deepseek.KIMI_FORMATS,
    parameters.STEP_3,
    *deepseek.DEEPSEEK_FORMATS,
    *parameters.MINIMAX_FORMATS,
    *llama.GEMMA_FORMATS,
    *llama.COHERE_FORMATS,
    *llama.MISTRAL_FORMATS,
    *deepseek.HUNYUAN_FORMATS,
    channels.MUSE,
    channels.INKLING,
    *others.OTHER_FORMATS,
    hermes.ERNIE_4_5,
    *llama.GRANITE_FORMATS,
    *parameters.LONGCAT_FORMATS,
    others.INTERNLM_2,
    hermes.NEMOTRON_NANO_2,
    *others.LFM_FORMATS,
    *others.PYTHONIC_FORMATS,
    *parameters.GLM_FORMATS,
    *parameters.CODER_FORMATS,
    *llama.LLAMA_FORMATS,
    *hermes.HERMES_FORMATS[:-1],
    *hermes.QWEN_FORMATS,
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
