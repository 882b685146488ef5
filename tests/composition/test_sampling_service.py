"""Sampling that a request leaves out, through the official client and a real model."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from enginekit import THREADS
from openai import OpenAI
from service import Service, serving

pytestmark = pytest.mark.engine

ASK = [{"role": "user", "content": "Tell me about the sea."}]
SMOLLM2 = {"temperature": 0.2, "top_k": 0, "top_p": 0.9, "min_p": 0.0, "repetition_penalty": 1.0}
NEUTRAL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}


@pytest.fixture(scope="module")
def service(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    engine = f"[models.llamacpp]\ncontext = 256\nparallel = 2\nthreads = {THREADS}\n"
    config = f"""
        [[doors]]
        name = "own"
        [[doors]]
        name = "router"
        kind = "router"
        [[models]]
        id = "usual"
        ref = "{gguf}"
        {engine}
        [[models]]
        id = "neutral"
        ref = "{gguf}"
        sampling = "neutral"
        {engine}
        [[catalog]]
        id = "ours/usual"
        [[catalog.endpoints]]
        model = "usual"
        """
    with serving(tmp_path_factory.mktemp("sampling"), config) as running:
        yield running


def shown(service: Service, prefix: str = "/v1") -> dict[str, Any]:
    """The default parameters of each model of a door."""
    with urllib.request.urlopen(f"{service.root}{prefix}/models", timeout=60) as answer:
        entries = json.load(answer)["data"]
    return {entry["id"]: entry["default_parameters"] for entry in entries}


def text(service: Service, model: str, **sampling: Any) -> str | None:
    client = OpenAI(base_url=service.base_url, api_key="none")
    answer = client.chat.completions.create(
        model=model, messages=ASK, seed=7, max_tokens=24, extra_body=sampling  # type: ignore[arg-type]  # the SDK wants a literal
    )  # fmt: skip
    return answer.choices[0].message.content


@pytest.mark.full
def test_what_is_left_out_is_what_the_catalog_shows(service: Service) -> None:
    assert shown(service) == {"usual": None, "neutral": None}  # not loaded yet
    silent = {model: text(service, model) for model in ("usual", "neutral")}
    assert shown(service) == {"usual": SMOLLM2, "neutral": NEUTRAL}
    assert shown(service, "/router/v1") == {"ours/usual": SMOLLM2}
    assert silent["usual"] != silent["neutral"]
    # Explicit values win, those that switch something off too.
    for model in ("usual", "neutral"):
        assert text(service, model, **SMOLLM2) == silent["usual"]
        assert text(service, model, **NEUTRAL) == silent["neutral"]
