"""vLLM as an engine: its process, its wire, and what is read from both.

On a program that is started and spoken to like vLLM; the contract of text engines is
asked of a real one.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import vllm_stand_in
from servicekit import service_view
from vllm_stand_in import model_folder as made
from waiting import gone

from causerie.engines.base import (
    EngineFailed,
    Output,
    PromptTooLong,
    Stopped,
    TextRequest,
    Token,
    TokenAlternative,
)
from causerie.engines.options import VllmOptions
from causerie.engines.vllm.client import vllm_arguments
from causerie.engines.vllm.engine import ServedFolder, VllmEngine, last_words
from causerie.protocol.parameters import SamplingParams

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for processes by pidfd"),
]

GREEDY = SamplingParams(temperature=0.0)


def options(folder: Path) -> VllmOptions:
    return VllmOptions(command=str(folder / "vllm"), parallel=2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for a server of a test's own."""
    return made(tmp_path)


@asynccontextmanager
async def started(folder: Path) -> AsyncIterator[VllmEngine]:
    engine = VllmEngine("m", ServedFolder(folder, weights=True), options(folder))
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the server that most tests share."""
    return made(tmp_path_factory.mktemp("model"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(home: Path) -> AsyncIterator[VllmEngine]:
    async with started(home) as engine:
        yield engine


@pytest.fixture
def engine(home: Path, shared: VllmEngine) -> VllmEngine:
    """The shared server, which behaves."""
    behave(home, "")
    return shared


def behave(folder: Path, how: str) -> None:
    (folder / "behaviour").write_text(how)


def asked(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "asked.jsonl").read_text().splitlines()]


def processes(folder: Path) -> list[int]:
    """The server and its worker."""
    return [int(pid) for pid in (folder / "processes").read_text().split()]


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what another process does, of which nothing tells."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.02)


async def run(engine: VllmEngine, request: TextRequest) -> list[Output]:
    async with engine.generate(request) as outputs:
        return [output async for output in outputs]


def written(outputs: Sequence[Output]) -> str:
    return "".join(output.text for output in outputs if isinstance(output, Token))


async def test_a_text_goes_through_and_ends(engine: VllmEngine) -> None:
    facts = await engine.facts()
    assert facts.context_length == vllm_stand_in.CONTEXT  # what the server says counts
    assert (facts.parallel, facts.template) == (2, "{{ messages[0].content }}")
    assert facts.fingerprint.startswith("vllm-0.32.0-llama-")
    prompt = await engine.tokenize(["the <think>é日本"], special=True)
    *tokens, stopped = await run(engine, TextRequest(prompt, 40, GREEDY))
    # A token that is added and not special is text; the end token is none.
    assert written(tokens) == "the <think>é日本"
    assert stopped == Stopped("stop", len(prompt), len(prompt) + 1, cached_tokens=2)


async def test_what_is_asked_for(home: Path, engine: VllmEngine) -> None:
    end = (await engine.facts()).end_tokens[0]
    prompt = await engine.tokenize(["the fox"], special=True)
    sampling = SamplingParams(top_k=4, seed=7, logit_bias={3: -100.0})
    request = TextRequest(prompt, 500, sampling, grammar="start: x", ignore_eos=True)
    *_, stopped = await run(engine, request)
    command, *_, body = asked(home)
    room = vllm_stand_in.CONTEXT - len(prompt)
    assert command[:2] == ["serve", str(home)]
    assert body == {
        "model": "model",
        "prompt": prompt,
        "max_tokens": room,
        "min_tokens": room,
        "stop_token_ids": [end],
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 4,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "seed": 7,
        "logit_bias": {"3": -100.0},
        "structured_outputs": {"grammar": "start: x"},
    }
    assert stopped == Stopped("length", len(prompt), len(prompt), cached_tokens=2)


@pytest.mark.parametrize("how", ["", "together"])
async def test_log_probabilities_are_of_tokens(home: Path, engine: VllmEngine, how: str) -> None:
    """However many tokens come at once."""
    behave(home, how)
    (other,) = await engine.texts([5])
    prompt = await engine.tokenize(["é"], special=True)
    outputs = await run(engine, TextRequest(prompt, 9, GREEDY, logprobs=1))
    tokens = [output for output in outputs if isinstance(output, Token)]
    assert b"".join(token.raw for token in tokens) == "é".encode()
    assert {token.logprob for token in tokens} == {-2.0}
    assert {token.top for token in tokens} == {(TokenAlternative(5, other, other.encode(), -0.5),)}


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("error", "the engine failed: Grammar error: unknown name"),
        ("refuse", "the engine answered 400: not today"),
        ("cut", "the (connection to the engine broke|engine ended an answer)"),
        ("garbled", "the engine wrote what cannot be read"),
        ("abort", "the engine gave up an answer: abort"),
    ],
)
async def test_answers_that_fail(home: Path, engine: VllmEngine, how: str, why: str) -> None:
    behave(home, how)
    with pytest.raises(EngineFailed, match=why):
        await run(engine, TextRequest([5, 6], 9))
    assert engine.status().busy == 0


async def test_who_leaves_ends_the_generation(home: Path, engine: VllmEngine) -> None:
    behave(home, "endless")
    async with engine.generate(TextRequest([5], 9)) as outputs:
        await anext(outputs)
        assert engine.status().busy == 1
    await until(lambda: asked(home)[-1] == "left")
    assert engine.status().busy == 0


async def test_a_grammar_that_goes_on_needs_one_thread(engine: VllmEngine) -> None:
    """With as many as there are threads, none would be left to read texts for them."""
    loop, only = asyncio.get_running_loop(), ThreadPoolExecutor(1)
    prompt = await engine.tokenize(["fox"], special=True)
    loop.set_default_executor(only)
    try:
        async with asyncio.timeout(60):
            request = TextRequest(prompt, 9, GREEDY, grammar="start: /[a-z]*/", resumed="the")
            *tokens, _ = await run(engine, request)
    finally:
        only.shutdown(wait=False, cancel_futures=True)
        loop.set_default_executor(ThreadPoolExecutor())
    assert written(tokens) == "fox"


async def test_what_ends_a_text_is_no_part_of_it(folder: Path) -> None:
    """Also where the tokenizer does not call it special."""
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    for token in content["added_tokens"]:
        token["special"] = False
    file.write_text(json.dumps(content))
    async with started(folder) as engine:
        (end,) = (await engine.facts()).end_tokens
        prompt = await engine.tokenize(["the"], special=True)
        for request in (
            TextRequest(prompt, 9, GREEDY),
            TextRequest(prompt, 9, GREEDY, grammar='start: "x" "the"', resumed="x"),
        ):
            *tokens, _ = await run(engine, request)
            assert [token.id for token in tokens if isinstance(token, Token)] == [*prompt, end]
            assert written(tokens) == "the"
        assert await engine.texts([end]) == [""]


@pytest.mark.parametrize("grammar", [None, 'start: "日"'])
async def test_a_character_that_the_prompt_begins_is_whole(
    engine: VllmEngine, grammar: str | None
) -> None:
    first, rest = await engine.tokenize(["日"], special=False)
    accepted = (first,) if grammar else ()
    request = TextRequest([rest, first], 1, GREEDY, grammar=grammar, accepted=accepted)
    token, _ = await run(engine, request)
    assert written([token]) == "日"


async def test_long_texts_of_those_who_left_hold_up_nobody(
    engine: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read to their end, and threads are few."""
    told, loop, threads = threading.Event(), asyncio.get_running_loop(), ThreadPoolExecutor(5)
    read = engine._folder_tokenizer.ids

    def ids(pieces: Sequence[str | int], *, special: bool) -> list[int]:
        if pieces != ["fox"]:
            told.wait(60)
        return read(pieces, special=special)

    monkeypatch.setattr(engine._folder_tokenizer, "ids", ids)
    monkeypatch.setattr(engine, "context", 100_000)
    loop.set_default_executor(threads)
    try:
        long = ["fox" * 30_000]
        left = [asyncio.create_task(engine.tokenize(long, special=True)) for _ in range(9)]
        for _ in range(10):  # as far as they come
            await asyncio.sleep(0)
        for task in left:
            task.cancel()
        async with asyncio.timeout(60):
            assert await engine.tokenize(["fox"], special=True)
    finally:
        told.set()
        threads.shutdown(wait=False, cancel_futures=True)
        loop.set_default_executor(ThreadPoolExecutor())


async def test_prompts_that_do_not_fit(engine: VllmEngine) -> None:
    with pytest.raises(PromptTooLong):
        await run(engine, TextRequest([5] * vllm_stand_in.CONTEXT, 1))
    with pytest.raises(PromptTooLong):
        await engine.tokenize(["fox" * 10_000], special=True)


async def test_a_model_that_cannot_be_loaded(folder: Path) -> None:
    """The cause is told, not what followed from it."""
    behave(folder, "no load")
    why = f"could not load {folder}: ValueError: No available memory for the cache blocks"
    with pytest.raises(EngineFailed, match=why):
        await VllmEngine("m", ServedFolder(folder, weights=True), options(folder)).start()


async def test_a_program_that_is_not_there(folder: Path) -> None:
    served = ServedFolder(folder, weights=True)
    engine = VllmEngine("m", served, VllmOptions(command="no-such-vllm"))
    with pytest.raises(EngineFailed, match="no-such-vllm: No such file or directory"):
        await engine.start()


async def test_a_program_that_ends_by_a_signal(folder: Path) -> None:
    """As a build for other processors does, without a word."""
    (folder / "vllm").write_text("#!/bin/sh\nkill -ILL $$\n")
    with pytest.raises(EngineFailed, match=r"signal 4 \(Illegal instruction\)"):
        await VllmEngine("m", ServedFolder(folder, weights=True), options(folder)).start()


async def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match=r"has no config\.json"):
        VllmEngine("m", ServedFolder(tmp_path, weights=True), VllmOptions())


async def test_a_load_that_takes_too_long(folder: Path) -> None:
    behave(folder, "silent")
    engine = VllmEngine("m", ServedFolder(folder, weights=True), options(folder), load_seconds=0.5)
    with pytest.raises(EngineFailed, match=r"not loaded within 0\.5 s"):
        await engine.start()


async def test_a_load_that_nobody_waits_for_leaves_no_process(folder: Path) -> None:
    behave(folder, "silent")
    engine = VllmEngine("m", ServedFolder(folder, weights=True), options(folder))
    loading = asyncio.create_task(engine.start())
    await until(lambda: (folder / "processes").exists() and len(processes(folder)) == 2)
    loading.cancel()
    await asyncio.wait({loading})
    for pid in processes(folder):
        await gone(pid)


async def test_stopping_leaves_no_process(folder: Path) -> None:
    async with started(folder) as engine:
        assert engine.pid is not None
        every = [engine.pid, *processes(folder)]
    for pid in every:
        await gone(pid)


async def test_a_killed_server_is_started_again(folder: Path) -> None:
    behave(folder, "endless")
    async with started(folder) as engine:
        server, worker = processes(folder)
        with pytest.raises(EngineFailed, match="broke"):
            async with engine.generate(TextRequest([5], 9)) as outputs:
                await anext(aiter(outputs))
                os.kill(server, signal.SIGKILL)
                async for _ in outputs:
                    pass
        await gone(worker)  # of the old one
        behave(folder, "")
        await until(lambda: engine.status().restarts > 0 and engine.pid is not None)
        *_, stopped = await run(engine, TextRequest([5], 9))
        assert isinstance(stopped, Stopped)


async def test_signals_to_all_processes_of_the_service_do_not_end_it(folder: Path) -> None:
    """The service itself says when: it may reload, or finish running answers first."""
    async with started(folder) as engine:
        assert engine.pid is not None
        ended = asyncio.create_task(gone(engine.pid))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(engine.pid, number)
        *_, stopped = await run(engine, TextRequest([5], 9))
        assert isinstance(stopped, Stopped)
        assert not ended.done()
    await ended


PARENT = """
import asyncio, sys
from pathlib import Path
from causerie.engines.vllm.engine import ServedFolder, VllmEngine
from causerie.engines.options import VllmOptions

async def main():
    served = ServedFolder(Path(sys.argv[1]), weights=True)
    engine = VllmEngine("m", served, VllmOptions(command=sys.argv[2]))
    await engine.start()
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_killed_service_leaves_no_process(folder: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PARENT,
        str(folder),
        str(folder / "vllm"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert parent.stdout is not None
    assert await parent.stdout.readline() == b"ready\n"
    parent.kill()
    for pid in processes(folder):
        await gone(pid)
    await parent.communicate()


async def test_a_service_answers_with_it(folder: Path, tmp_path: Path) -> None:
    """The stand-in echoes its input: the prompt, as the template has it."""
    model = f'[[models]]\nid = "m"\nengine = "vllm"\nref = "{folder}"\npreload = true\n'
    options = f'[models.vllm]\ncommand = "{folder / "vllm"}"\nparallel = 2\n'
    async with service_view(tmp_path, model + options) as service:
        status, headers, answer = await service.ask("/v1", "m")
        assert (status, headers["x-served-by"]) == (200, "m")
        assert answer["choices"][0]["message"]["content"] == "Hi"
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 2
        server, _ = processes(folder)
        assert (await service.reload(f"{model}max_output_tokens = 9\n{options}")).applied
        assert processes(folder)[0] == server  # the engine is the one that it was
    await gone(server)


async def test_the_command_line() -> None:
    told = VllmOptions(
        command="v",
        context=4096,
        parallel=8,
        tensor_parallel=4,
        pipeline_parallel=2,
        gpu_memory=0.8,
        args=("--enforce-eager",),
    )
    command = " ".join(vllm_arguments(Path("/m"), told, 9001))
    assert command == (
        "v serve /m --host 127.0.0.1 --port 9001 --served-model-name model "
        '--structured-outputs-config {"backend": "guidance"} --generation-config vllm '
        "--max-logprobs 20 --enable-prompt-tokens-details --disable-uvicorn-access-log "
        "--max-model-len 4096 --max-num-seqs 8 --tensor-parallel-size 4 "
        "--pipeline-parallel-size 2 --gpu-memory-utilization 0.8 --enforce-eager"
    )


async def test_the_last_words_are_not_those_of_a_warning() -> None:
    said = [
        "(APIServer pid=1) WARNING 11-26 13:38:40 [system_utils.py:255] Found ulimit of 20000. "
        "This can cause fd limit errors like `OSError: [Errno 24] Too many open files`.",
        "(EngineCore pid=2) ERROR 11-26 13:40:47 [core.py:1510] ValueError: current platform cpu "
        "does not support ray.",
        "RuntimeError: Engine core initialization failed. See root cause above.",
    ]
    assert last_words(said) == "ValueError: current platform cpu does not support ray."
