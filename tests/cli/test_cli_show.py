"""``causerie show``, and whether a quantization is fast on a CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hub import gguf
from typer.testing import CliRunner

from causerie.cli.root import app
from causerie.engines.weights.folder import OPENVINO

TEMPLATE = "{{ '<think>' }}<tool_call>{{ enable_thinking }}{{ tools }}<|im_start|>"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def test_facts_of_a_file(tmp_path: Path) -> None:
    extra = {"general.file_type": 15, "general.sampling.temp": 0.5}
    content = gguf({**extra, "tokenizer.chat_template": TEMPLATE}, padding=3_000_000)
    (tmp_path / "m.gguf").write_bytes(content)
    result = CliRunner().invoke(app, ["show", "m.gguf", "--json"])
    assert result.exit_code == 0, result.stderr
    facts = json.loads(result.stdout)
    assert facts["file"] == facts["weights"] == str(tmp_path / "m.gguf")
    assert facts["quantization"] == "Q4_K_M"
    assert (facts["size"], facts["trained_context"]) == (len(content), 2048)
    assert facts["sampling"] == {"temperature": 0.5}
    assert (facts["context"], facts["fits"]) == (2048, True)
    assert facts["memory_needed"] > facts["size"]
    shown = CliRunner().invoke(app, ["show", "m.gguf"]).stdout
    lines = dict(line.split("  ", 1) for line in shown.splitlines())
    found = {key.strip(): value.strip() for key, value in lines.items()}
    assert (found["trained context"], found["size"], found["fits"]) == ("2,048", "3 MB", "yes")
    assert found["sampling"] == "temperature 0.5"


@pytest.mark.parametrize(
    ("engine", "weights"),
    [
        ("openvino", dict.fromkeys(OPENVINO, b"12")),
        ("vllm", {"model.safetensors": b"12345678"}),
    ],
)
def test_facts_of_a_folder(tmp_path: Path, engine: str, weights: dict[str, bytes]) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    config = json.dumps({"model_type": "qwen3", "max_position_embeddings": 4096}).encode()
    told = {"config.json": config, "tokenizer.json": b"{}", "chat_template.jinja": b"{{ tools }}"}
    for name, content in (weights | told).items():
        (folder / name).write_bytes(content)
    result = CliRunner().invoke(app, ["show", "./model", "--json"])
    assert result.exit_code == 0, result.stderr
    facts = json.loads(result.stdout)
    assert facts["folder"] == facts["weights"] == str(folder)
    assert (facts["engine"], facts["architecture"]) == (engine, "qwen3")
    assert (facts["size"], facts["trained_context"]) == (8, 4096)
    assert facts["template_names_tools"]
    (folder / "config.json").unlink()
    result = CliRunner().invoke(app, ["show", "./model"])
    assert result.exit_code
    assert "config.json" in result.stderr


def test_a_name_that_is_not_fetched() -> None:
    result = CliRunner().invoke(app, ["show", "qwen3:0.6b", "--json"])
    assert json.loads(result.stdout) == {
        "name": "qwen3:0.6b",
        "weights": "hf:Qwen/Qwen3-0.6B-GGUF:Q8_0",
        "license": "Apache-2.0",
        "size": 639_000_000,
        "trained_context": 32_768,
        "file": "not fetched",
    }
    result = CliRunner().invoke(app, ["show", "hf:org/repo"])
    assert result.exit_code == 4
    assert "not on this machine; fetch it by `causerie pull hf:org/repo`" in result.stderr
