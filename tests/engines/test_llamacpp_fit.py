"""Whether a model fits into this machine, and what would."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import structlog
from casekit import each_of
from hub import gguf
from msgspec import structs
from test_llamacpp_options import GIB, HEADER, KV

from causerie.engines.base import EngineFailed
from causerie.engines.llamacpp import engine as engine_module
from causerie.engines.llamacpp import options
from causerie.engines.llamacpp.engine import LlamaCppEngine
from causerie.engines.llamacpp.options import LlamaCppOptions, Need, for_machine, largest_context
from causerie.engines.machine import model_memory_bytes
from causerie.engines.weights.gguf import smaller_that_fits

FIXED = model_memory_bytes(HEADER, 0)  # weights and buffers


@each_of(
    ("room", "context"),
    [
        (FIXED + 1000 * KV, 768),
        (FIXED + 8192 * KV, 8192),
        (FIXED + 99_999 * KV, 32768),
        (FIXED, 0),
        (0, 0),
    ],
)
def test_the_context_that_fits(room: int, context: int) -> None:
    assert largest_context(HEADER, "f16", room) == context
    assert model_memory_bytes(HEADER, context) <= room or not context


def test_a_smaller_type_of_numbers_holds_more() -> None:
    assert largest_context(HEADER, "q8_0", FIXED + 8192 * KV) > 15_000


def test_auto_takes_what_the_free_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "available_memory", lambda: 64 * GIB)
    monkeypatch.setattr(options, "free_memory", lambda: (FIXED + 10_000 * KV) * 100 // 90 + 1)
    auto = LlamaCppOptions(context="auto", prompt_cache="0B")
    launch = for_machine(HEADER.path, auto, HEADER)
    assert (launch.context, launch.cache_tokens) == (9984, 9984)
    short = replace(HEADER, context_length=2048)
    launch = for_machine(HEADER.path, structs.replace(auto, parallel=3), short)
    assert (launch.context, launch.parallel, launch.cache_tokens) == (2048, 3, 6144)
    monkeypatch.setattr(options, "free_memory", lambda: 0)
    assert for_machine(HEADER.path, auto, HEADER).context == 256


def test_a_system_that_does_not_say_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> int:
        raise FileNotFoundError

    monkeypatch.setattr(options, "free_memory", none)
    assert options.free_now(7) == 7


@pytest.mark.parametrize(
    ("room", "advice"),
    [
        (FIXED + 4096 * KV, "a context of 4,096 tokens would fit"),
        (GIB, "its quantization Q5_K_M would fit, with about 7"),
        (GIB // 4, "take a smaller model"),
    ],
)
def test_what_would_fit_is_proposed(room: int, advice: str) -> None:
    header = replace(HEADER, file_type=7)
    need = Need(header, 8192, "f16", model_memory_bytes(header, 8192))
    assert need.advice(room).startswith(advice)


def test_smaller_quantizations() -> None:
    assert smaller_that_fits("Q8_0", 8_500, 5_000) == ("Q4_K_M", 4_900)
    assert smaller_that_fits("Q4_K_M", 4_900, 5_000) == ("Q3_K_M", 3_900)
    assert smaller_that_fits("Q2_K", 3_300, 5_000) is None
    assert smaller_that_fits(None, 1, 5_000) is None


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of 3 MB on a machine without a GPU."""
    path = tmp_path / "m-Q8_0.gguf"
    path.write_bytes(gguf(padding=3_000_000))
    monkeypatch.setattr(engine_module, "has_gpu", lambda: False)
    return path


def test_a_model_that_cannot_fit_is_refused_before_it_loads(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "available_memory", lambda: 1_000_000)
    with pytest.raises(
        EngineFailed,
        match=r"m needs about \d+ MB for its weights and a cache of [\d,]+ tokens, and this "
        r"machine has 1 MB; take a smaller model",
    ):
        LlamaCppEngine("m", file, LlamaCppOptions())
    monkeypatch.setattr(engine_module, "has_gpu", lambda: True)
    assert LlamaCppEngine("m", file, LlamaCppOptions()).context == 2048
    with pytest.raises(EngineFailed, match="needs about"):
        LlamaCppEngine("m", file, LlamaCppOptions(gpu_layers=0))


def test_short_memory_is_said(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "free_now", lambda total: 1_000_000)
    with structlog.testing.capture_logs() as logs:
        LlamaCppEngine("m", file, LlamaCppOptions())
    assert [(line["event"], line["advice"]) for line in logs] == [
        ("memory is short", "take a smaller model")
    ]
