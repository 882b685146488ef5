"""``causerie prices``: what applies, and a newer list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from causerie.cli.root import app
from causerie.providers.price_list import COLUMNS

HEAD = ",".join(COLUMNS)
CONFIG = """
[store]
folder = "data"
[[providers]]
name = "o"
base_url = "https://api.openai.com/v1"
[[providers]]
name = "x"
base_url = "http://x.example/v1"
[[aliases]]
id = "chat"
targets = [{ provider = "o", model = "gpt-5.4" }, { provider = "x", model = "m" }]
[[aliases]]
id = "o/*"
targets = [{ provider = "o", model = "*" }]
[[aliases]]
id = "set"
price = { prompt = "1", completion = "2" }
targets = [{ provider = "x", model = "m" }]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "causerie.toml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


def told(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(words), terminal_width=200)
    assert result.exit_code == code, result.output
    return result.stdout + result.stderr


def test_what_applies(file: Path) -> None:
    rows = json.loads(told("prices", "list", "--json", "--config", str(file)))
    found = [(row["alias"], row["target"], row["prompt"], row["origin"]) for row in rows]
    assert found == [
        ("chat", "o/gpt-5.4", "2.5", "list price, 2026-08-06"),
        ("chat", "o/gpt-5.4", "5", "list price, 2026-08-06"),
        ("chat", "x/m", "", "no price"),
        ("o/*", "o/*", "", "list price of each model"),
        ("set", "x/m", "1", "set"),
    ]
    assert rows[1]["above"] == "272000"
    assert "claude-haiku-4-5" in told("prices", "list", "anthropic", "--config", str(file))
    words = told("prices", "list", "nobody", "--config", str(file), code=2)
    assert "no provider nobody; it has anthropic, bedrock" in words
    shown = told("check", "--config", str(file))
    assert "# List price of chat at o/gpt-5.4: 2.5 in, 15 out per 1M tokens" in shown


def test_a_newer_list_is_taken(file: Path) -> None:
    newer = file.with_name("newer.csv")
    newer.write_text(
        f"{HEAD}\nopenai,gpt-5.4,,7,8,,,https://a,2030-01-01\n"
        "openai,gpt-4o,,7,8,,,https://a,2020-01-01\n"
        "mine,m,,1,1,,,https://a,2030-01-01\n"
    )
    words = told("prices", "update", str(newer), "--config", str(file))
    assert "openai gpt-5.4: 2.5/15/0.25, above 272000: 5/22.5/0.5 -> 7/8" in words
    assert "mine m: none -> 1/1" in words
    assert "2 models changed; 1 models are as before" in words
    rows = json.loads(told("prices", "list", "--json", "--config", str(file)))
    assert (rows[0]["prompt"], rows[0]["origin"]) == ("7", "list price, 2030-01-01")
    assert (file.parent / "data" / "prices.csv").read_text() == newer.read_text()


def test_a_wrong_list_changes_nothing(file: Path) -> None:
    wrong = file.with_name("wrong.csv")
    wrong.write_text(f"{HEAD}\nopenai,gpt,,x,8,,,https://a,2030-01-01\n")
    words = told("prices", "update", str(wrong), "--config", str(file), code=2)
    assert "wrong.csv: line 2: it is no number" in words
    assert not (file.parent / "data" / "prices.csv").exists()
