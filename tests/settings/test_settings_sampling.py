"""The setting ``models.sampling``: a table of values, or a word."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from causerie.cli.root import app
from causerie.protocol.parameters import ModelSampling, SamplingDefaults
from causerie.settings.load import load
from causerie.settings.problems import SettingsError

MODEL = '[[models]]\nid = "a"\nengine = "fake"\n'


def written(folder: Path, text: str) -> Path:
    file = folder / "causerie.toml"
    file.write_text(MODEL + text, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", SamplingDefaults()),
        ('sampling = "neutral"', "neutral"),
        ("sampling = { temperature = 1, top_k = 0 }", SamplingDefaults(temperature=1, top_k=0)),
        ("[models.sampling]\nmin_p = 0.1", SamplingDefaults(min_p=0.1)),
    ],
)
def test_what_it_takes(tmp_path: Path, text: str, found: ModelSampling) -> None:
    file = written(tmp_path, text)
    settings = load(file=file, environ={}).settings
    assert settings.models[0].sampling == found
    again = tmp_path / "again.toml"
    again.write_text(CliRunner().invoke(app, ["check", "--config", str(file)]).stdout)
    assert load(file=again, environ={}).settings == settings


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('sampling = "hot"', 'sampling: is "hot"; it takes a table or `"neutral"`'),
        ("sampling = 1", 'sampling: is 1; it takes a table or `"neutral"`'),
        ("[models.sampling]\ntop_p = 2", "sampling.top_p: is 2; it takes a number above 0 to 1"),
        ("[models.sampling]\ntemp = 1", "sampling.temp: is not a setting; did you mean"),
    ],
)
def test_what_it_refuses(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(file=written(tmp_path, text), environ={})
    assert f"models[0].{problem}" in str(refused.value.problems[0])
