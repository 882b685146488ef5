"""The probe on real servers: our own doors, and the HTTP server of llama.cpp itself.

Each serves two models. One has random weights, whose text neither ends nor repeats itself, and a
real one, which takes thirty times as long, is asked what only such a text shows.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from service import free_port, serving

from causerie.probe.interview import Found, Interview, ProbeBounds, ProbeClient, cost, supported
from causerie.probe.question import Grade, ProbeQuestion, Subject
from causerie.probe.questions import QUESTIONS
from causerie.protocol.parameters import HONOURED

KEY = "ck_test_secret"
PATIENT = ProbeBounds(seconds=300.0)
DIGEST = hashlib.sha256(KEY.encode()).hexdigest()
BARE = """
import sys, time, xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.n_ctx, p.n_parallel = sys.argv[1], 4096, 2
p.hostnames, p.port = ["127.0.0.1"], int(sys.argv[2])
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1
s = xllamacpp.Server(p)
time.sleep(600)
"""
# Asked with a key on a door that needs one, so these are not what a provider of ours must answer.
_OF_ROUTERS = {"reasoning", "models.open"}
_PENALTIES = {"frequency_penalty", "presence_penalty", "repetition_penalty"}
_OF_LANGUAGE = _PENALTIES | {"ignore_eos", "min_tokens", "continues"}
TO_REAL = [one for one in QUESTIONS if one.id in {"completion", *_OF_LANGUAGE}]
TO_TINY = [one for one in QUESTIONS if one.id not in _OF_LANGUAGE]


async def asked(
    base_url: str,
    model: str,
    key: str | None,
    questions: Sequence[ProbeQuestion] = QUESTIONS,
) -> tuple[Interview, dict[str, Found]]:
    async with ProbeClient(base_url, key, bounds=PATIENT) as asker:
        interview = Interview(Subject(base_url, model, keyed=key is not None), asker)
        found = {one.id: one async for one in interview.findings(questions)}
    return interview, found


def graded(found: dict[str, Found], grade: Grade) -> dict[str, str]:
    return {id: one.how for id, one in found.items() if one.answer == grade}


async def test_a_scripted_model_behind_a_door_with_keys(tmp_path: Path) -> None:
    """It draws nothing and its text never varies; all else is what the interface says."""
    config = f"""
        [server]
        keys = ["ck_test:{DIGEST}"]
        [[models]]
        id = "echo"
        engine = "fake"
    """
    with serving(tmp_path, config) as service:
        interview, found = await asked(service.base_url, "echo", KEY)
    assert interview.complete
    sampling = {"temperature", "frequency_penalty", "presence_penalty", "repetition_penalty"}
    others = {"documents", "images", "embeddings", "rerank", "completions"}
    assert set(graded(found, "no")) == _OF_ROUTERS | sampling | others
    assert not graded(found, "partly")
    quiet = {"top_p", "top_k", "min_p", "seed", "parallel_tool_calls", "cancel.plain"}
    quiet.add("tool_choice.none")  # the prompt is the same, and no call comes anyway
    assert set(graded(found, "unclear")) == quiet | {"session_id", "key.placeholder"}
    assert found["key.none"].answer == "yes"
    assert KEY not in repr(list(found.values()))


@pytest.mark.full
@pytest.mark.engine
async def test_real_weights_on_our_own_engine(gguf: Path, tiny_gguf: Path, tmp_path: Path) -> None:
    """The measured parameters are those that the catalog claims."""
    limits = "context = 2048, parallel = 2, threads = 1"
    config = f"""
        [[models]]
        id = "tiny"
        ref = "{tiny_gguf}"
        llamacpp = {{ {limits} }}
        [[models]]
        id = "small"
        ref = "{gguf}"
        llamacpp = {{ {limits} }}
        [[doors]]
        name = "endpoint"
        keys = "off"
    """
    with serving(tmp_path, config) as service:
        interview, found = await asked(service.base_url, "tiny", None, TO_TINY)
        spoken, more = await asked(service.base_url, "small", None, TO_REAL)
    found |= more
    others = {"images", "embeddings", "rerank", "completions"}
    assert set(graded(found, "no")) <= {"reasoning", "documents", *others}
    unseen = {"models.open", "session_id", "key.none", "key.wrong", "parallel_tool_calls"}
    unseen.add("tool_choice.none")  # the prompt is the same, and this model makes no call anyway
    assert set(graded(found, "unclear")) <= unseen
    assert set(graded(found, "partly")) <= {"response_format.strict"}  # it may draw them, too
    measured = set(supported(found.values())) | {"parallel_tool_calls"}
    assert HONOURED - measured == {"model", "messages", "session_id", "reasoning", "documents"}
    assert interview.subject.thinking == "switch"
    assert spoken.subject.continues is True
    assert interview.subject.context_length == 2048
    bound = cost(TO_TINY, [interview.subject])
    assert interview.spent <= bound.tokens
    assert interview.requests <= bound.requests


@contextmanager
def bare(gguf: Path) -> Iterator[str]:
    """The server that llama.cpp brings along."""
    port = free_port()
    command = [sys.executable, "-c", BARE, str(gguf), str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _await(f"http://127.0.0.1:{port}/health", time.monotonic() + 120)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.wait()


def _await(url: str, deadline: float) -> None:
    while True:
        try:
            with urllib.request.urlopen(url, timeout=60):
                return
        except (urllib.error.URLError, OSError):
            assert time.monotonic() < deadline
        time.sleep(0.1)  # another process: there is nothing to await but its answer


@pytest.mark.full
@pytest.mark.engine
async def test_the_http_server_of_llama_cpp(gguf: Path, tiny_gguf: Path) -> None:
    """It takes much in silence that it does not do."""
    with bare(tiny_gguf) as base_url:
        interview, found = await asked(base_url, "tiny", None, TO_TINY)
    assert interview.complete
    with bare(gguf) as base_url:
        spoken, more = await asked(base_url, "small", None, TO_REAL)
    found |= more
    honoured = {
        *("temperature", "top_p", "top_k", "min_p", "seed", "logit_bias", "logprobs"),
        *("frequency_penalty", "presence_penalty", "stop", "n", "max_tokens", "ignore_eos"),
        *("response_format", "stream", "stream_options"),
    }
    ignored = {
        *("min_tokens", "stop_token_ids", "repetition_penalty", "structured_outputs"),
        *("tool_choice", "documents", "tools"),
    }
    assert honoured <= set(supported(found.values()))
    assert not ignored & set(supported(found.values()))
    assert "accepted, no effect" in found["min_tokens"].how
    assert interview.subject.thinking == "never"
    assert spoken.subject.continues is True
    assert found["continues"].how == "whenever an assistant message is the last one"
    assert interview.subject.context_length == 2048
    assert found["cancel.stream"].answer == "yes"
