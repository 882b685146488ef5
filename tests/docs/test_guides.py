"""The pages for users: their configurations hold, and their sentences are short."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import certificates
import pytest
from casekit import each_of
from typer.testing import CliRunner

from causerie.cli.root import app

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs/start").glob("*.md")),
    *sorted((ROOT / "docs/guides").glob("*.md")),
    ROOT / "docs/reference/engines.md",
    ROOT / "docs/internals/change-one-thing.md",
    *sorted((ROOT / "docs/internals").glob("add-*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
]
MOST_WORDS = 40
ADDED = "# in addition to the first example\n"
EXAMPLE = re.compile(r"```toml\n(.*?)```", re.DOTALL)
VARIABLE = re.compile(r'env = "(\w+)"')
FILE = re.compile(r'"((?:\./)?[\w-]+\.(?:jinja|gguf))"')
CODE = re.compile(r"```.*?```|<picture>.*?</picture>", re.DOTALL)
SENTENCE = re.compile(r"(?<=[.!?:])\s+|\n\s*\n|\n\s*[-#|]|\n    ")


def _examples() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        blocks = EXAMPLE.findall(page.read_text(encoding="utf-8"))
        for number, text in enumerate(blocks):
            whole = f"{blocks[0]}\n{text}" if text.startswith(ADDED) else text
            found.append((f"{page.stem}-{number}", whole))
    return found


EXAMPLES = _examples()


@pytest.mark.parametrize("text", [text for _, text in EXAMPLES], ids=[name for name, _ in EXAMPLES])
def test_every_configuration_holds(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that an example names exist, and its variables are set, as its reader would do it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in VARIABLE.findall(text):
        kind = "whsec_" if name.startswith("ALERTS") else ""
        monkeypatch.setenv(name, f"{kind}c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IDMz")
    certificates.made(tmp_path)
    for name in FILE.findall(text):
        (tmp_path / name).write_text("", encoding="utf-8")
    text = text.replace("/srv/models/model.gguf", str(tmp_path / "model.gguf"))
    (tmp_path / "model.gguf").write_text("", encoding="utf-8")
    text = text.replace("/opt/llama.cpp/bin/llama-server", sys.executable)
    file = tmp_path / "causerie.toml"
    file.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(app, ["check", "--config", str(file)])
    assert result.exit_code == 0, result.stderr


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 20


@each_of("page", PAGES, ids=[page.stem for page in PAGES])
def test_no_sentence_is_long(page: Path) -> None:
    sentences = SENTENCE.split(CODE.sub(" ", page.read_text(encoding="utf-8")))
    long = [" ".join(one.split()) for one in sentences if len(one.split()) > MOST_WORDS]
    assert not long, f"split these sentences: {long}"
