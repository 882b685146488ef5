"""Projectors: which one of a repository or a folder belongs to a model, and what it takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hub import gguf as written
from vision_model import write_projector

from causerie.engines.llamacpp.options import LlamaCppOptions, for_machine, with_projector
from causerie.engines.weights.errors import NotGguf
from causerie.engines.weights.gguf import choose_projector, projector_beside, read_header

WIDTH = 64


def model(folder: Path, name: str = "Eye-7B-Q4_K_M.gguf") -> Path:
    file = folder / name
    file.write_bytes(written({"llama.embedding_length": WIDTH}))
    return file


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        (["a-Q4_K_M.gguf", "README.md"], ()),
        (["a-Q4_K_M.gguf", "mmproj-a-f16.gguf"], ("mmproj-a-f16.gguf",)),
        (["mmproj-BF16.gguf", "mmproj-F16.gguf", "mmproj-F32.gguf"], ("mmproj-F16.gguf",)),
        (["a.mmproj-Q8_0.gguf", "mmproj.json"], ("a.mmproj-Q8_0.gguf",)),
    ],
)
def test_the_projector_of_a_repository(files: list[str], chosen: tuple[str, ...]) -> None:
    assert choose_projector(files) == chosen


def test_the_one_beside_the_weights_fits_their_width(tmp_path: Path) -> None:
    header = read_header(model(tmp_path))
    assert projector_beside(header) is None
    write_projector(tmp_path / "mmproj-Eye-14B-F16.gguf", WIDTH + 8)
    (tmp_path / "mmproj-broken.gguf").write_bytes(b"GGUF")
    assert projector_beside(header) is None
    write_projector(tmp_path / "mmproj-Other-F16.gguf", WIDTH)
    write_projector(tmp_path / "mmproj-Eye-7B-F32.gguf", WIDTH)
    assert projector_beside(header) == tmp_path / "mmproj-Eye-7B-F32.gguf"


def test_it_counts_in_what_the_model_needs(tmp_path: Path) -> None:
    file = model(tmp_path)
    header, options = read_header(file), LlamaCppOptions(context=256, parallel=1)
    alone = for_machine(file, with_projector(options, header), header)
    write_projector(projector := tmp_path / "mmproj-F16.gguf", WIDTH)
    chosen = with_projector(options, header)
    both = for_machine(file, chosen, header)
    assert chosen.mmproj == str(projector)
    assert both.memory - alone.memory == projector.stat().st_size
    assert str(projector) in both.files


def test_it_is_left_out_or_named(tmp_path: Path) -> None:
    file = model(tmp_path)
    header = read_header(file)
    write_projector(tmp_path / "mmproj-F16.gguf", WIDTH)
    assert with_projector(LlamaCppOptions(images=False), header).mmproj is None
    assert with_projector(LlamaCppOptions(embeddings=True), header).mmproj is None
    write_projector(named := tmp_path / "eye.gguf", WIDTH)
    assert with_projector(LlamaCppOptions(mmproj=str(named)), header).mmproj == str(named)
    with pytest.raises(NotGguf, match="no projector for images"):
        with_projector(LlamaCppOptions(mmproj=str(file)), header)
