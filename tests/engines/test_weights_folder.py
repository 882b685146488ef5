"""Model folders: what they say of themselves, and folders that lie."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causerie.engines.weights.errors import NotModelFolder
from causerie.engines.weights.folder import OPENVINO, read_folder, read_openvino_folder

CONFIG = {"model_type": "llama", "max_position_embeddings": 2048}


def folder(path: Path, **files: object) -> Path:
    """A model folder; a name's first ``__`` stands for its dot, ``None`` takes a file away."""
    usual = {"config__json": CONFIG, "tokenizer__json": {}, "model__safetensors": "12345678"}
    path.mkdir(exist_ok=True)
    for name, content in (usual | files).items():
        if content is not None:
            text = content if isinstance(content, str) else json.dumps(content)
            (path / name.replace("__", ".")).write_text(text, "utf-8")
    return path


def refused(path: Path, why: str, **files: object) -> None:
    with pytest.raises(NotModelFolder, match=why):
        read_folder(folder(path, **files))


def test_facts(tmp_path: Path) -> None:
    found = read_folder(folder(tmp_path, README__md="x", chat_template__jinja="{{ messages }}"))
    assert (found.architecture, found.context_length, found.file_size) == ("llama", 2048, 8)
    assert found.chat_template == "{{ messages }}"
    names = ["chat_template.jinja", "config.json", "model.safetensors", "tokenizer.json"]
    assert [file.name for file in found.files] == names


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({"text_config": {"max_position_embeddings": 9}}, 9),
        ({"text_config": {}}, 0),
        ({"text_config": None, "limit": float("inf")}, 0),
    ],
)
def test_context_length(tmp_path: Path, config: dict[str, object], length: int) -> None:
    found = read_folder(folder(tmp_path, config__json={"model_type": "m", **config}))
    assert found.context_length == length


@pytest.mark.parametrize(
    ("template", "found"),
    [
        ("a", "a"),
        ([{"name": "tool_use", "template": "b"}, {"name": "default", "template": "c"}], "c"),
        ([{"name": "tool_use", "template": "b"}], ""),
        (None, ""),
    ],
)
def test_template_of_the_tokenizer(tmp_path: Path, template: object, found: str) -> None:
    path = folder(tmp_path, tokenizer_config__json={"chat_template": template})
    assert read_folder(path).chat_template == found
    folder(path, chat_template__jinja="own")
    assert read_folder(path).chat_template == "own"


def test_weights_are_those_that_the_index_names(tmp_path: Path) -> None:
    index = {"weight_map": {"a": "part.safetensors", "b": "part.safetensors"}}
    path = folder(tmp_path, part__safetensors="123")
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert read_folder(path).file_size == 3
    (path / "part.safetensors").unlink()
    refused(path, r"part\.safetensors is missing")


def test_weights_of_the_older_kind(tmp_path: Path) -> None:
    files = {"model__safetensors": None, "training_args__bin": "x"}
    refused(tmp_path, "no weights", **files)
    assert read_folder(folder(tmp_path, **files, pytorch_model__bin="12")).file_size == 2


@pytest.mark.parametrize(
    ("config", "recurrent"),
    [
        ({}, False),
        ({"layer_types": ["full_attention", "sliding_attention"]}, False),
        ({"layer_types": ["linear_attention", "full_attention"]}, True),
        ({"layer_types": ["conv", "full_attention"]}, True),
        ({"text_config": {"layer_types": ["mamba", "attention"]}}, True),
        ({"mamba_d_state": 16}, True),
        ({"text_config": {"conv_L_cache": 3}}, True),
    ],
)
def test_recurrent_layers(tmp_path: Path, config: dict[str, object], recurrent: bool) -> None:
    assert read_folder(folder(tmp_path, config__json=CONFIG | config)).is_recurrent is recurrent


def test_weights_for_openvino(tmp_path: Path) -> None:
    parts = {name.replace(".", "__"): "123" for name in OPENVINO}
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 8, "hidden_size": 64}
    files = {"model__safetensors": None, "config__json": CONFIG | sizes, **parts}
    refused(tmp_path, 'for `engine = "openvino"`', **files)
    found = read_openvino_folder(tmp_path)
    assert found.file_size == 12
    assert {tmp_path / name for name in OPENVINO} < set(found.files)
    assert found.kept_elements == 2 * 2 * 64  # of keys and values, in two layers
    folder(
        tmp_path,
        model__safetensors=None,
        config__json=CONFIG | sizes | {"num_key_value_heads": 2, "head_dim": 16},
    )
    assert read_openvino_folder(tmp_path).kept_elements == 2 * 2 * 2 * 16
    folder(
        tmp_path,
        model__safetensors=None,
        config__json=CONFIG | {"num_hidden_layers": -1, "hidden_size": True},
    )
    assert read_openvino_folder(tmp_path).kept_elements == 0
    (tmp_path / OPENVINO[-1]).unlink()
    with pytest.raises(NotModelFolder, match=r"no openvino_tokenizer\.bin"):
        read_openvino_folder(tmp_path)


@pytest.mark.parametrize(
    ("why", "files"),
    [
        (r"no config\.json", {"config__json": None}),
        ("not JSON", {"config__json": "{"}),
        ("not JSON", {"config__json": "[" * 100_000}),
        ("not a JSON object", {"config__json": []}),
        ("no architecture", {"config__json": {"model_type": 1}}),
        ("not a number", {"config__json": CONFIG | {"max_position_embeddings": True}}),
        (r"no tokenizer\.json", {"tokenizer__json": None}),
        (r"tekken\.json, which is not read", {"tokenizer__json": None, "tekken__json": "{}"}),
        ("not a text", {"tokenizer_config__json": {"chat_template": 1}}),
    ],
)
def test_what_is_missing_or_wrong_is_said(
    tmp_path: Path, why: str, files: dict[str, object]
) -> None:
    refused(tmp_path, why, **files)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(NotModelFolder, match="no such folder"):
        read_folder(tmp_path / "none")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "template", "default", "weight_map", "text_config"]), inner
        )
    ),
    max_leaves=8,
)


@given(st.fixed_dictionaries({"model_type": JSON, "max_position_embeddings": JSON}), JSON, JSON)
def test_hostile_json_is_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, config: object, template: object, index: object
) -> None:
    path = folder(
        tmp_path_factory.mktemp("hostile"),
        config__json=config,
        tokenizer_config__json={"chat_template": template},
    )
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    with suppress(NotModelFolder):  # anything else escapes and fails
        read_folder(path)
