"""All formats, and which of them a template is of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from causerie.chat.formats import channels, hermes, others, parameters
from causerie.chat.formats.format import (
    CallSection,
    Literal,
    ModelFormat,
    Name,
    ParameterList,
    Segment,
)
from causerie.chat.formats.hermes import GENERIC

# Models leave out the first marker of a section of calls at times. Then only a marker of the first
# call, or an offered function's name with a marker behind it, tells the section from text.


def with_headless(form: ModelFormat) -> ModelFormat:
    """Return the format, which also reads its section of calls without the first markers."""
    calls = form.calls
    if form.header is not None:
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
    channels.BEAM, channels.LLM_JP, channels.GPT_OSS, parameters.KIMI_K3, parameters.KIMI_K2_5,
    parameters.KIMI_K2_THINKING, parameters.KIMI_K2, parameters.STEP_3, parameters.DEEPSEEK_V4_1,
    parameters.DEEPSEEK_V3_2, parameters.DEEPSEEK_V4, parameters.DEEPSEEK_R1_SWITCHED,
    parameters.DEEPSEEK_R1, parameters.DEEPSEEK_V3, parameters.DEEPSEEK_V3_1,
    parameters.MINIMAX_M3, parameters.MINIMAX_M2, parameters.MINIMAX_M1, hermes.GEMMA_4,
    hermes.FUNCTION_GEMMA, hermes.GEMMA_3, hermes.COMMAND_A, hermes.COMMAND_R7B, hermes.COMMAND_R,
    hermes.MISTRAL_SMALL_3_2, hermes.MAGISTRAL, hermes.MISTRAL, hermes.MISTRAL_NEMO,
    parameters.HUNYUAN_4, parameters.HUNYUAN_3, parameters.HUNYUAN_A13B, channels.MUSE,
    channels.INKLING, others.PLAMO_3, others.SEED_OSS, others.APERTUS, others.APRIEL,
    others.SOLAR_OPEN_2, others.SOLAR_OPEN, others.GIGACHAT_3_5, others.GIGACHAT_3_1,
    others.GIGACHAT_3, others.MINICPM_5, others.K2_HORIZON, others.DOTS, others.JAMBA,
    others.XLAM_2, others.PHI_4_REASONING, others.PHI_4_MINI, hermes.ERNIE_4_5,
    hermes.GRANITE_20B, hermes.GRANITE_4, hermes.GRANITE_3_3, hermes.GRANITE_3,
    parameters.LONGCAT_2, parameters.LONGCAT_FLASH, others.INTERNLM_2, hermes.NEMOTRON_NANO_2,
    others.LFM_2_5, others.LFM_2, others.OLMO_3_THINK, others.OLMO_3, parameters.IQUEST_Q1,
    parameters.LING_3, parameters.SPARK_2_5, parameters.LAGUNA_S, parameters.LAGUNA,
    parameters.GLM_4_7, parameters.GLM_4_5, parameters.NEMOTRON_3, parameters.STEP_3_5,
    parameters.QWEN_3_5, parameters.QWEN_3_CODER, hermes.FIREFUNCTION_2, hermes.FUNCTIONARY_3_2,
    hermes.FUNCTIONARY_3_1, hermes.TOOL_ACE, hermes.LLAMA_4, hermes.LLAMA_4_PYTHONIC,
    hermes.LLAMA_3, hermes.SMOLLM_3, hermes.BIELIK, hermes.REKA, hermes.MIMO, hermes.QWEN_3,
    hermes.QWEN_3_THINKING, hermes.QWEN_3_INSTRUCT, hermes.QWQ_SWITCHED, hermes.QWQ,
    hermes.HERMES, hermes.GENERIC_THINKING, hermes.GENERIC,
)  # fmt: skip
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
