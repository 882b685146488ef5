"""Sampling: as a model's publisher recommends it, and as fields of a request to an engine.

The recommendation is in the model's files, else in the table of well-known families, whose rows
each name their source. The fields know no parameter by name: names, order and neutral values
are those of the declarations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from math import isfinite

import msgspec
import structlog

from causerie.engines.base import RecommendedSampling
from causerie.protocol.declaration import Parameter
from causerie.protocol.parameters import MODEL_SAMPLING, SAMPLING, SamplingDefaults, SamplingParams


@dataclass(frozen=True, slots=True)
class Family:
    """One row. A parameter that is not set is neutral."""

    pattern: str
    """A regular expression, searched for in names like ``qwen-qwen3-8b-gguf``."""
    usual: SamplingDefaults
    source: str
    without_thinking: SamplingDefaults | None = None
    """``None``: as usual."""


def family_of(names: Iterable[str]) -> Family | None:
    """Return the family of a model by its names, the most telling first."""
    for name in names:
        written = _NOT_IN_NAMES.sub("-", name.lower())
        for family in FAMILIES:
            if re.search(family.pattern, written):
                return family
    return None


_NOT_IN_NAMES = re.compile(r"[^a-z0-9.]+")
_QWEN_INSTRUCT = SamplingDefaults(temperature=0.7, top_p=0.8, top_k=20)
_QWEN_THINKING = SamplingDefaults(temperature=0.6, top_p=0.95, top_k=20)
_GENTLE = SamplingDefaults(temperature=0.6, top_p=0.95)
_OPEN = SamplingDefaults(temperature=1.0, top_p=0.95)

# The first row that matches counts: what a model was made from is named after what it is.
FAMILIES: tuple[Family, ...] = (
    Family("deepseek-r1", _GENTLE, "model card of deepseek-ai/DeepSeek-R1"),
    Family(
        "deepseek-v4",
        SamplingDefaults(temperature=1.0, top_p=1.0),
        "model card of deepseek-ai/DeepSeek-V4-Flash",
    ),
    Family(r"deepseek-v3\.2(?!-exp)", _OPEN, "model card of deepseek-ai/DeepSeek-V3.2"),
    Family(
        r"deepseek-v3\.(1|2-exp)",
        _GENTLE,
        "generation_config.json of deepseek-ai/DeepSeek-V3.1 and DeepSeek-V3.2-Exp",
    ),
    Family(
        "deepseek-v3-0324",
        SamplingDefaults(temperature=0.3),
        "model card of deepseek-ai/DeepSeek-V3-0324",
    ),
    Family(
        "qwq-32b",
        SamplingDefaults(temperature=0.6, top_p=0.95, top_k=40),
        "model card of Qwen/QwQ-32B",
    ),
    Family(
        "qwen3-coder",
        SamplingDefaults(temperature=0.7, top_p=0.8, top_k=20, repetition_penalty=1.05),
        "model card of Qwen/Qwen3-Coder-30B-A3B-Instruct",
    ),
    Family(
        r"qwen3\.[568]",
        SamplingDefaults(temperature=1.0, top_p=0.95, top_k=20),
        "model cards of Qwen/Qwen3.5-27B, Qwen/Qwen3.6-27B and Qwen/Qwen3.8-27B",
        _QWEN_INSTRUCT,
    ),
    Family(
        "qwen3-(?!vl|omni).*instruct", _QWEN_INSTRUCT, "model card of Qwen/Qwen3-4B-Instruct-2507"
    ),
    Family(
        r"qwen3(?![.0-9]|-vl|-omni|-embedding|-reranker)",
        _QWEN_THINKING,
        "model card of Qwen/Qwen3-8B",
        _QWEN_INSTRUCT,
    ),
    Family(
        r"qwen2\.5(?!-vl|-omni|-math)",
        SamplingDefaults(temperature=0.7, top_p=0.8, top_k=20, repetition_penalty=1.05),
        "generation_config.json of Qwen/Qwen2.5-7B-Instruct",
    ),
    Family("smollm3", _GENTLE, "model card of HuggingFaceTB/SmolLM3-3B"),
    Family(
        "smollm2",
        SamplingDefaults(temperature=0.2, top_p=0.9),
        "example in the model card of HuggingFaceTB/SmolLM2-135M-Instruct",
    ),
    Family(
        "gemma-?[34]",
        SamplingDefaults(temperature=1.0, top_p=0.95, top_k=64),
        "model card of google/gemma-4-31B-it, generation_config.json of google/gemma-3-4b-it",
    ),
    Family("gpt-oss", SamplingDefaults(temperature=1.0, top_p=1.0), "README of openai/gpt-oss"),
    Family(r"glm-(4\.[67]|5)", _OPEN, "defaults of Z.ai's API reference"),
    Family(r"glm-4\.5", _GENTLE, "defaults of Z.ai's API reference"),
    Family(
        "glm-z1",
        SamplingDefaults(temperature=0.6, top_p=0.95, top_k=40),
        "model card of zai-org/GLM-Z1-32B-0414",
    ),
    Family(
        "glm-4-(9b|32b)-0414",
        SamplingDefaults(temperature=0.75, top_p=0.9),
        "defaults of Z.ai's API reference",
    ),
    Family("kimi-k3", _OPEN, "model card of moonshotai/Kimi-K3"),
    Family(r"kimi-k2\.5", _OPEN, "model card of moonshotai/Kimi-K2.5", _GENTLE),
    Family(
        "kimi-k2-thinking",
        SamplingDefaults(temperature=1.0),
        "model card of moonshotai/Kimi-K2-Thinking",
    ),
    Family(
        r"kimi-k2(?!\.)",
        SamplingDefaults(temperature=0.6),
        "model card of moonshotai/Kimi-K2-Instruct",
    ),
    Family(
        "minimax-m2",
        SamplingDefaults(temperature=1.0, top_p=0.95, top_k=40),
        "model card of MiniMaxAI/MiniMax-M2",
    ),
    Family("minimax-m3", _OPEN, "model card of MiniMaxAI/MiniMax-M3"),
    Family("minimax-m1", _OPEN, "model card of MiniMaxAI/MiniMax-M1-80k"),
    Family(
        "magistral",
        SamplingDefaults(temperature=0.7, top_p=0.95),
        "model card of mistralai/Magistral-Small-2506",
    ),
    Family(
        "devstral",
        SamplingDefaults(temperature=0.15),
        "example in the model card of mistralai/Devstral-Small-2505",
    ),
    Family(
        "mistral-small-(3|24b)",
        SamplingDefaults(temperature=0.15),
        "model card of mistralai/Mistral-Small-3.2-24B-Instruct-2506",
    ),
    Family(
        "mistral-nemo",
        SamplingDefaults(temperature=0.3),
        "model card of mistralai/Mistral-Nemo-Instruct-2407",
    ),
    Family(
        "phi-4-reasoning",
        SamplingDefaults(temperature=0.8, top_p=0.95, top_k=50),
        "model card of microsoft/Phi-4-reasoning",
    ),
    Family(
        r"lfm2(?![.0-9]|-vl|-audio)",
        SamplingDefaults(temperature=0.3, min_p=0.15, repetition_penalty=1.05),
        "model card of LiquidAI/LFM2-8B-A1B",
    ),
    Family(
        "seed-oss",
        SamplingDefaults(temperature=1.1, top_p=0.95),
        "model card of ByteDance-Seed/Seed-OSS-36B-Instruct",
    ),
    Family(
        r"hunyuan-(a13b|0\.5b|1\.8b|4b|7b)",
        SamplingDefaults(temperature=0.7, top_p=0.8, top_k=20, repetition_penalty=1.05),
        "model card of tencent/Hunyuan-A13B-Instruct",
    ),
    Family(
        "apertus",
        SamplingDefaults(temperature=0.8, top_p=0.9),
        "model card of swiss-ai/Apertus-8B-Instruct-2509",
    ),
    Family(
        "llama-?[34]",
        SamplingDefaults(temperature=0.6, top_p=0.9),
        "generation_config.json of meta-llama/Llama-3.1-8B-Instruct",
    ),
)


log = structlog.get_logger(__name__)

_PENALTY = "penalises"  # alone it says nothing about how to draw


def sampling_of_gguf(told: Mapping[str, float], names: Iterable[str]) -> RecommendedSampling | None:
    """Return the recommendation for a GGUF file.

    ``told`` has its keys below ``general.sampling.``, and ``names`` the most telling name first.
    """
    known = {each.name: told.get(each.facts.gguf or each.name) for each in MODEL_SAMPLING}
    return _recommended(known, "the model file", names)


def sampling_of_folder(
    told: Mapping[str, object], names: Iterable[str]
) -> RecommendedSampling | None:
    """Return the recommendation for a model folder; ``told`` is its ``generation_config.json``."""
    known = {each.name: told.get(each.name) for each in MODEL_SAMPLING}
    return _recommended(known, "generation_config.json", names)


def _recommended(
    told: Mapping[str, object], source: str, names: Iterable[str]
) -> RecommendedSampling | None:
    family = family_of(names)
    usual = _usable(told, source) or (family.usual if family else None)
    if usual is None:
        return None
    other = family.without_thinking if family else None
    return RecommendedSampling(usual, other or usual)


def _usable(told: Mapping[str, object], source: str) -> SamplingDefaults | None:
    # A recommendation is used as a whole: what it leaves out is neutral.
    values: dict[str, float] = {}
    draws = False
    for each in MODEL_SAMPLING:
        value = told.get(each.name)
        if value is None:
            continue
        usable = _value_in_range(each, value)
        if usable is None:
            log.warning(
                "recommended sampling ignored", parameter=each.name, value=value, source=source
            )
            continue
        values[each.name] = usable
        draws = draws or each.facts.effect != _PENALTY
    return msgspec.convert(values, SamplingDefaults) if draws else None


def _value_in_range(parameter: Parameter, value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return None
    try:
        usable: float = msgspec.convert(value, parameter.type)
    except msgspec.ValidationError:
        return None
    return usable


_LEAST = 1e-6  # engines compute in single precision, and refuse what is not to be 0 and is there


def engine_fields(engine: str, wanted: SamplingParams) -> dict[str, float]:
    """Return all numeric sampling parameters that the engine has, by its own names.

    One that is not set is neutral; the engine's own defaults never apply.
    """
    fields = {}
    for name, field, neutral in _numbers(engine):
        value = getattr(wanted, name)
        if value is None or value in neutral:
            value = neutral[0]
        fields[field] = _LEAST if 0 < value < _LEAST else value
    return fields


def neutral_values(engine: str, effect: str) -> dict[str, float]:
    """Return the fields of an engine whose parameters act this way, and their neutral values."""
    acting = {each.name for each in SAMPLING if each.facts.effect == effect}
    return {field: neutral[0] for name, field, neutral in _numbers(engine) if name in acting}


@cache
def _numbers(engine: str) -> tuple[tuple[str, str, tuple[float, ...]], ...]:
    return tuple(
        (each.name, field, each.facts.neutral)
        for each in SAMPLING
        if each.number is not None
        and each.facts.neutral
        and (field := each.facts.engines.get(engine, each.name)) is not None
    )
