"""A parameter that is declared in one place arrives everywhere.

Two made-up parameters are declared in a copy of the package, in one file; nothing else of the copy
is changed. ``made_up_parameter.py`` then runs there, and a whole service.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from service import serving

import causerie

SOURCE = Path(causerie.__file__).parent
GENERATORS = Path(__file__).parents[2] / "tools" / "docs"
DECLARATIONS = Path("protocol", "parameters.py")
BEFORE = "\n\nclass SamplingParams("
DECLARED = """
    sharpness: Annotated[
        Annotated[float, Meta(ge=0, le=2)] | None,
        Meta(description="1 is off."),
        Facts(
            origin="engines",
            neutral=(1.0,),
            effect="narrows",
            visible_at=2.0,
            engines={"llamacpp": "sharp"},
        ),
    ] = None
    wobble: Annotated[
        Annotated[int, Meta(ge=0, le=9)] | None,
        Meta(description="0 is off."),
        Facts(neutral=(0,), engines={"llamacpp": None}),
    ] = None
"""
CONFIG = """
[[models]]
id = "scripted"
engine = "fake"
[[models]]
id = "embedded"
ref = "/nowhere/model.gguf"
preload = false
"""

Found = dict[str, Any]


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package that declares the two parameters."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(SOURCE, folder / "causerie")  # with what is compiled of it, which is as old
    file = folder / "causerie" / DECLARATIONS
    text = file.read_text()
    assert text.count(BEFORE) == 1
    file.write_text(text.replace(BEFORE, DECLARED + BEFORE))
    return folder


@pytest.fixture(scope="module")
def found(copied: Path, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """Return the values of every derivation in the copy."""
    script = Path(__file__).parents[1].joinpath("made_up_parameter.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path_factory.mktemp("settings"))],
        env={"PYTHONPATH": os.pathsep.join([str(copied), str(GENERATORS)]), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: Found = json.loads(done.stdout)
    assert result["package"] == str(copied / "causerie")
    return result


def test_readers(found: Found) -> None:
    assert found["reading"] == {
        "value": 1.5,
        "given": True,
        "null": None,
        "too much": "`sharpness` must be from 0 to 2, not 3.",
        "no number": "`sharpness` must be a number, not a string.",
        "left to the careful reader": True,
        "same": True,
    }


def test_engines(found: Found) -> None:
    assert found["engines"] == {
        "of the request": [1.5, 1.5],
        "of the model": [0.5, 0.5],
        "neutral": [1.0, 1.0],
        "samplers": ["sharp"],
        "refused": False,
        "not refused": 0,
        "recommended": [0.5, 0.5],
    }


def test_dialects(found: Found) -> None:
    page = found["dialects"].pop("page")
    assert found["dialects"] == {
        "vllm": [1.5, []],
        "openai": "The provider that serves this model does not support `sharpness`.",
        "openai, neutral": [None, ["sharpness dropped"]],
    }
    assert page.count("✓") > 3
    assert "✗" in page


def test_defaults_of_models(found: Found) -> None:
    assert found["configured"] == {
        "default": 0.5,
        "wrong": "models[0].sampling.sharpness: is 5; it takes a number from 0 to 2",
        "page": "| `sharpness` | a number from 0 to 2 |  | 1 is off. |",
    }


def test_documents_and_pages(found: Found) -> None:
    number = {"type": "number", "minimum": 0, "maximum": 2}
    schema = {"anyOf": [number, {"type": "null"}], "description": "1 is off."}
    assert found["shown"] == {
        "openapi": [schema, schema],
        "question": "Does `sharpness` narrow?",
        "groups": ["Sampling"],
        "reference": "| `sharpness` | the same | the same | 0 to 2. 1 is off |",
        "playground": ["Sharpness", 0, 2, "1"],
    }


def test_a_service(copied: Path, tmp_path: Path) -> None:
    program = ("env", f"PYTHONPATH={copied}", sys.executable, "-m", "causerie")
    with serving(tmp_path, CONFIG, program=program) as service:
        with urllib.request.urlopen(f"{service.base_url}/models", timeout=60) as answer:
            entries = {each["id"]: each for each in json.load(answer)["data"]}
        supported = {id: set(each["supported_parameters"]) for id, each in entries.items()}
        assert supported["scripted"] >= {"sharpness", "wobble"}
        assert supported["embedded"] & {"sharpness", "wobble"} == {"sharpness"}
        assert _ask(service.base_url, "scripted", sharpness=1.5) == (200, None)
        assert _ask(service.base_url, "scripted", sharpness=3) == (400, "sharpness")
        assert _ask(service.base_url, "embedded", wobble=1) == (400, "wobble")


def _ask(base: str, model: str, **fields: object) -> tuple[int, str | None]:
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
    request = urllib.request.Request(
        f"{base}/chat/completions",
        json.dumps(body | fields).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, None
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)["error"]["param"]
