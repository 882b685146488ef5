"""Engines of other packages, by the example of the documentation."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import pytest
from service import serving

from causerie.engines.base import EngineFailed
from causerie.engines.registry import engine_factory

PAGE = Path(__file__).parents[2] / "docs" / "internals/engine-plugins.md"
TOML, PYTHON = (
    re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for language in ("toml", "python")
)


def install(folder: Path, entry_points: str, **modules: str) -> None:
    """A package as an installer leaves it: modules, and what its metadata offers."""
    metadata = folder / "example-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: example\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[causerie.engines]\n" + entry_points)
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)


def entry_points_of_the_page() -> str:
    group, line = TOML[0].splitlines()
    assert group == '[project.entry-points."causerie.engines"]'
    return str(line).replace('"', "")


def test_the_example_is_eight_lines() -> None:
    assert len([line for line in PYTHON[0].splitlines() if line.strip()]) <= 8


def test_the_example_serves_a_chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", entry_points_of_the_page(), causerie_backwards=PYTHON[0])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    body = {"model": "mirror", "messages": [{"role": "user", "content": "Grüß dich"}]}
    with serving(tmp_path, TOML[1]) as service:
        request = urllib.request.Request(
            f"{service.base_url}/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = json.load(response)
    assert answer["choices"][0]["message"]["content"] == "hcid ßürG"
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_an_engine_that_nobody_offers_is_named() -> None:
    with pytest.raises(EngineFailed, match="no engine named nonsense; known are fake, llamacpp"):
        engine_factory("nonsense")


@pytest.mark.parametrize("target", ["no_such_module:engine", "broken_engine:engine"])
def test_an_engine_that_cannot_be_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    install(tmp_path / "site", f"broken = {target}", broken_engine="")
    monkeypatch.syspath_prepend(tmp_path / "site")
    with pytest.raises(EngineFailed, match=rf"broken of another package \({target}\) cannot be"):
        engine_factory("broken")
