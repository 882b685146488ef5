"""The package that is published: complete, and refused where it is not."""

from __future__ import annotations

import copy
import shutil
import subprocess
import sys
import tarfile
from email.message import Message
from pathlib import Path

import pytest
from check_package import metadata_problems, problems

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel and the sdist, made from what belongs to them; by their endings."""
    folder = tmp_path_factory.mktemp("package")
    source = folder / "source"
    for name in ("src", "docs", "examples"):
        shutil.copytree(ROOT / name, source / name)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "uv", "build", "--quiet", "--no-build-isolation", "--offline"]
    dist = ["--python", sys.executable, "--out-dir", str(folder / "dist"), str(source)]
    subprocess.run([*command, *dist], check=True)
    return {path.suffix: path for path in (folder / "dist").iterdir()}


@pytest.mark.parametrize("ending", [".whl", ".gz"])
def test_the_package_is_complete(built: dict[str, Path], ending: str) -> None:
    assert list(problems(built[ending])) == []


def test_the_sdist_has_the_examples_that_its_documentation_links(built: dict[str, Path]) -> None:
    with tarfile.open(built[".gz"]) as sdist:
        assert any(name.endswith("/examples/team/causerie.toml") for name in sdist.getnames())


def test_placeholders_are_not_published(built: dict[str, Path]) -> None:
    found = list(problems(built[".whl"], publish=True))
    assert len(found) == 4
    assert all("placeholder" in problem for problem in found)


@pytest.mark.parametrize("field", ["Author", "Keywords", "Summary", "Version"])
def test_an_empty_field_is_refused(field: str) -> None:
    metadata = _whole()
    assert list(metadata_problems(metadata)) == []
    without = copy.deepcopy(metadata)
    del without[field]
    assert list(metadata_problems(without)) == [f"{field} is empty"]


def test_an_empty_address_is_refused() -> None:
    metadata = _whole()
    del metadata["Project-URL"]
    for name in ("Homepage", "Documentation", "Source", "Changelog"):
        metadata["Project-URL"] = f"{name}, https://causerie.example"
    metadata["Project-URL"] = "Issues, "
    assert list(metadata_problems(metadata)) == ["the address of Issues is empty or not https"]


def _whole() -> Message:
    metadata = Message()
    for name in ("Name", "Version", "Summary", "License-Expression", "Requires-Python"):
        metadata[name] = "x"
    for name in ("Keywords", "Author", "Classifier", "Description"):
        metadata[name] = "x"
    for name in ("Homepage", "Documentation", "Source", "Changelog", "Issues"):
        metadata["Project-URL"] = f"{name}, https://causerie.example"
    return metadata
