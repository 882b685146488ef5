"""The real llama.cpp in its child process, with a small model."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from casekit import first_of
from enginekit import THREADS
from msgspec import structs
from weightskit import write_plain

from causerie.engines.base import (
    EngineFailed,
    EngineState,
    Output,
    PromptTooLong,
    Started,
    Stopped,
    TextRequest,
    Token,
)
from causerie.engines.llamacpp import engine as llamacpp
from causerie.engines.llamacpp.client import ChunkedPrefill, completion_body
from causerie.engines.llamacpp.engine import LlamaCppChild, LlamaCppEngine
from causerie.engines.llamacpp.options import LlamaCppOptions
from causerie.engines.prefill import PrefillSpeed
from causerie.engines.supervised import GivenUp
from causerie.protocol.parameters import SamplingParams

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

CONTEXT = 300  # no multiple of what the engine rounds to
OPTIONS = LlamaCppOptions(context=CONTEXT, parallel=2, threads=THREADS)
GREEDY = SamplingParams(temperature=0.0)
PROMPT = "<|im_start|>user\nCount from one to fifty.<|im_end|>\n<|im_start|>assistant\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tiny_gguf: Path) -> AsyncIterator[LlamaCppEngine]:
    made = LlamaCppEngine("small", tiny_gguf, OPTIONS)
    await made.start()
    yield made
    await made.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def slow(gguf: Path) -> AsyncIterator[LlamaCppEngine]:
    """One that is still at work when somebody leaves."""
    made = LlamaCppEngine("slow", gguf, OPTIONS)
    await made.start()
    yield made
    await made.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def prompt(engine: LlamaCppEngine) -> list[int]:
    return await engine.tokenize([PROMPT], special=True)


async def run(engine: LlamaCppEngine, request: TextRequest) -> list[Output]:
    async with engine.generate(request) as outputs:
        return [output async for output in outputs]


def tokens(outputs: list[Output]) -> list[Token]:
    return [output for output in outputs if isinstance(output, Token)]


def text(outputs: list[Output]) -> str:
    return "".join(token.text for token in tokens(outputs))


async def busy(engine: LlamaCppEngine) -> int:
    slots = await engine._client().ask("GET", "/slots")
    return sum(slot["is_processing"] for slot in slots)


async def a_moment() -> None:
    """A state is looked at, by health and metrics and here; nothing announces it."""
    await asyncio.sleep(0.005)


async def until_free(engine: LlamaCppEngine) -> None:
    async with asyncio.timeout(60):
        while await busy(engine):
            pass


async def until_back(engine: LlamaCppEngine, restarts: int) -> None:
    async with asyncio.timeout(60):
        while engine.status().restarts < restarts or engine.status().state is not EngineState.READY:
            await a_moment()


async def test_facts(engine: LlamaCppEngine, tiny_gguf: Path) -> None:
    facts = await engine.facts()
    assert (facts.context_length, facts.parallel) == (CONTEXT, 2)
    assert facts.control_tokens["<|im_end|>"] in facts.end_tokens
    assert facts.eos_token == "<|im_end|>"
    assert "<|im_start|>" in facts.template
    assert facts.vocabulary == str(tiny_gguf)
    assert facts.fingerprint.startswith("llamacpp-")
    assert await engine.facts() is facts


async def test_status(engine: LlamaCppEngine, prompt: list[int]) -> None:
    async with engine.generate(TextRequest(prompt, 5)) as outputs:
        assert engine.status().busy == 1
        assert [output async for output in outputs]
    status = engine.status()
    assert (status.model, status.state, status.slots, status.busy) == (
        "small", EngineState.READY, 2, 0,
    )  # fmt: skip
    assert (status.memory_bytes or 0) > 90_000_000
    assert status.pid == engine.pid


async def test_plain_text_forges_no_control_token(engine: LlamaCppEngine) -> None:
    facts = await engine.facts()
    end = facts.control_tokens["<|im_end|>"]
    assert await engine.tokenize(["<|im_end|>"], special=True) == [end]
    assert end not in await engine.tokenize(["<|im_end|>"], special=False)
    assert (await engine.tokenize(["a", end, "b"], special=False))[1] == end


@pytest.mark.parametrize("count", [1, 2, 7])
async def test_exactly_as_many_tokens_as_asked_for(
    engine: LlamaCppEngine, prompt: list[int], count: int
) -> None:
    first, *middle, last = await run(engine, TextRequest(prompt, count, GREEDY, ignore_eos=True))
    assert isinstance(first, Started)
    assert len(middle) == count
    assert isinstance(last, Stopped)
    assert (last.reason, last.prompt_tokens) == ("length", len(prompt))
    assert last.completion_tokens == count


async def test_the_end_of_the_text(engine: LlamaCppEngine, prompt: list[int]) -> None:
    grammar = '%llguidance {}\nstart: "done"\n'
    outputs = await run(engine, TextRequest(prompt, 20, GREEDY, grammar=grammar))
    assert text(outputs) == "done"
    last = outputs[-1]
    assert isinstance(last, Stopped)
    assert (last.reason, last.completion_tokens) == ("stop", len(tokens(outputs)))


async def test_every_token_of_every_character(engine: LlamaCppEngine, prompt: list[int]) -> None:
    said = "🙂日本é x🙃"
    grammar = f'%llguidance {{}}\nstart: "{said}"\n'
    for logprobs in (None, 2):
        outputs = await run(
            engine, TextRequest(prompt, 60, GREEDY, grammar=grammar, logprobs=logprobs)
        )
        last = outputs[-1]
        assert isinstance(last, Stopped)
        assert text(outputs) == said
        assert len(tokens(outputs)) == last.completion_tokens
        ids = [token.id for token in tokens(outputs)][:-1]  # without the end
        answer = await engine._client().ask("POST", "/detokenize", {"tokens": ids})
        assert answer["content"] == said
        assert b"".join(token.raw for token in tokens(outputs)).decode() == (
            said if logprobs else ""
        )


@pytest.mark.parametrize("penalty", first_of([None, 1.3]))
async def test_a_grammar_that_the_engine_does_not_follow_is_followed_here(
    engine: LlamaCppEngine,
    prompt: list[int],
    monkeypatch: pytest.MonkeyPatch,
    penalty: float | None,
) -> None:
    """As for a native build. With a penalty tokens are banned, and not raised."""
    monkeypatch.setattr(engine, "keeps_grammars", False)
    sampling = SamplingParams(temperature=1.0, repetition_penalty=penalty)
    grammar = '%llguidance {}\nstart: "é" /[0-9]{2}[a-z ]+/ "."\n'
    request = TextRequest(prompt, 12, sampling, grammar=grammar, logprobs=1)
    outputs = await run(engine, request)
    assert re.fullmatch(r"é[0-9]{2}([a-z ]+\.?)?", text(outputs))
    assert all(token.logprob is not None and token.logprob <= 0 for token in tokens(outputs))
    assert isinstance(outputs[-1], Stopped)
    assert outputs[-1].completion_tokens == len(tokens(outputs))


async def test_control_tokens_are_seen_only_when_asked_for(
    engine: LlamaCppEngine, prompt: list[int]
) -> None:
    start = (await engine.facts()).control_tokens["<|im_start|>"]
    grammar = f'%llguidance {{}}\nstart: "a" <[{start}]> "b"\n'
    for visible, expected in ((("<|im_start|>",), "a<|im_start|>b"), ((), "ab")):
        request = TextRequest(prompt, 20, GREEDY, grammar=grammar, visible=visible)
        outputs = await run(engine, request)
        assert text(outputs) == expected
        assert start in [token.id for token in tokens(outputs)]


async def test_log_probabilities(engine: LlamaCppEngine, prompt: list[int]) -> None:
    outputs = await run(engine, TextRequest(prompt, 4, GREEDY, logprobs=3, ignore_eos=True))
    for token in tokens(outputs):
        assert token.logprob is not None
        assert token.logprob <= 0
        assert len(token.top) == 3
        assert token.top[0].logprob >= token.top[1].logprob
        assert token.raw.decode() == token.text
    outputs = await run(engine, TextRequest(prompt, 2, GREEDY, logprobs=0))
    assert all(token.logprob is not None and not token.top for token in tokens(outputs))


async def test_a_seed_gives_the_same_again(engine: LlamaCppEngine, prompt: list[int]) -> None:
    said = [
        text(await run(engine, TextRequest(prompt, 12, SamplingParams(temperature=1.5, seed=seed))))
        for seed in (1, 1, 2, 3)
    ]
    assert said[0] == said[1]
    assert len(set(said)) > 1


async def test_a_bias_forces_a_token(engine: LlamaCppEngine, prompt: list[int]) -> None:
    sampling = SamplingParams(temperature=0.0, logit_bias={100: 100.0})
    outputs = await run(engine, TextRequest(prompt, 3, sampling, ignore_eos=True))
    assert [token.id for token in tokens(outputs)] == [100] * 3


async def test_a_prompt_seen_before_is_cached(engine: LlamaCppEngine, prompt: list[int]) -> None:
    request = TextRequest([*prompt, *prompt, *prompt], 1, GREEDY)
    await run(engine, request)
    first, *_, last = await run(engine, request)
    assert first == Started(len(request.prompt) - 1)
    assert isinstance(last, Stopped)
    assert last.cached_tokens == len(request.prompt) - 1


async def test_a_prompt_that_does_not_fit(engine: LlamaCppEngine) -> None:
    with pytest.raises(PromptTooLong) as failure:
        await run(engine, TextRequest([100] * CONTEXT, 1))
    assert (failure.value.tokens, failure.value.context_length) == (CONTEXT, CONTEXT)


async def test_a_text_that_cannot_fit_is_not_read(
    engine: LlamaCppEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = (await engine._vocabulary()).longest
    assert len(await engine.tokenize([" " * longest * CONTEXT], special=True)) > CONTEXT
    monkeypatch.setattr(engine, "_token_ids", None)
    with pytest.raises(PromptTooLong) as failure:
        await engine.tokenize([7, "a" * longest * CONTEXT], special=True)
    assert (failure.value.tokens, failure.value.context_length) == (CONTEXT + 1, CONTEXT)


@pytest.mark.full
async def test_an_answer_ends_where_the_context_does(engine: LlamaCppEngine) -> None:
    request = TextRequest([100] * (CONTEXT - 3), 50, GREEDY, ignore_eos=True)
    last = (await run(engine, request))[-1]
    assert last == Stopped("length", CONTEXT - 3, 3, last.cached_tokens)  # type: ignore[union-attr]  # a Stopped


@pytest.mark.parametrize("after", [0, 1, 5])
async def test_leaving_frees_the_slot(slow: LlamaCppEngine, prompt: list[int], after: int) -> None:
    request = TextRequest(prompt, 250, GREEDY, ignore_eos=True)
    async with slow.generate(request) as outputs:
        for _ in range(after):
            await anext(outputs)
        assert await busy(slow) == 1
    assert slow.status().busy == 0
    await until_free(slow)


async def test_leaving_while_the_prompt_is_read_ends_the_reading(slow: LlamaCppEngine) -> None:
    long = TextRequest([1000 + number for number in range(280)], 1, GREEDY)
    async with slow.generate(long) as outputs:
        async for output in outputs:
            assert output == Started(0)
            break
    await until_free(slow)
    async with slow.generate(long) as outputs:
        started = await anext(outputs)
        assert isinstance(started, Started)
        assert started.cached_tokens < len(long.prompt) - 1  # the rest was not read for nobody
    await until_free(slow)


class Slow(PrefillSpeed):
    """The speed of a slow machine, whatever machine this is."""

    def observe(self, tokens: int, seconds: float) -> None:
        """Note nothing."""


@pytest.mark.full
async def test_a_stream_goes_on_while_a_long_prompt_is_read(
    slow: LlamaCppEngine, prompt: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    speed = ChunkedPrefill(64, CONTEXT, 1)
    speed.speed = Slow(0.05)
    monkeypatch.setattr(slow._client(), "_prefill", speed)
    long = TextRequest([2000 + number for number in range(112)], 2, GREEDY, ignore_eos=True)
    seen: list[Output] = []
    streamed = 0

    async def read() -> None:
        async with slow.generate(long) as outputs:
            seen.extend([output async for output in outputs])

    stream = TextRequest(prompt, CONTEXT - len(prompt) - 1, GREEDY, ignore_eos=True)
    async with slow.generate(stream) as outputs, asyncio.TaskGroup() as group:
        while not isinstance(await anext(outputs), Token):
            pass
        reading = group.create_task(read())
        async for _ in outputs:
            if reading.done():
                break
            streamed += 1
    assert streamed >= 6  # one for each chunk of 8; batches of 64 let two or three through
    assert seen[0] == Started(0)
    assert len(tokens(seen)) == 2
    assert seen[-1] == Stopped("length", 112, 2, 0)
    await until_free(slow)


async def test_cancelling_frees_the_slot(slow: LlamaCppEngine, prompt: list[int]) -> None:
    begun = asyncio.Event()

    async def read() -> None:
        async with slow.generate(TextRequest(prompt, 250, GREEDY, ignore_eos=True)) as outputs:
            async for _ in outputs:
                begun.set()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(read())
        await begun.wait()
        task.cancel()
    await until_free(slow)


async def test_more_generations_than_slots(engine: LlamaCppEngine, prompt: list[int]) -> None:
    request = TextRequest(prompt, 20, GREEDY, ignore_eos=True)
    alone = text(await run(engine, request))
    together = await asyncio.gather(*(run(engine, request) for _ in range(5)))
    assert all(len(tokens(outputs)) == 20 for outputs in together)
    assert {text(outputs)[:10] for outputs in together} == {alone[:10]}


async def test_a_killed_child_fails_its_requests_and_comes_back(
    slow: LlamaCppEngine, prompt: list[int]
) -> None:
    restarts = slow.status().restarts
    pid = slow.pid
    assert pid is not None
    seen = 0
    async with slow.generate(TextRequest(prompt, 250, GREEDY, ignore_eos=True)) as outputs:
        with pytest.raises(EngineFailed):
            async for _ in outputs:
                seen += 1
                if seen == 5:
                    os.kill(pid, signal.SIGKILL)
    while slow.status().state is EngineState.READY:
        await a_moment()
    with pytest.raises(EngineFailed) as failure:
        await slow.tokenize(["a"], special=False)
    assert failure.value.loading
    assert failure.value.retry_after > 0
    assert "signal 9" in slow.status().detail
    await until_back(slow, restarts + 1)
    assert len(tokens(await run(slow, TextRequest(prompt, 3, GREEDY, ignore_eos=True)))) == 3


@pytest.mark.full
async def test_a_child_that_lives_and_answers_no_more_is_replaced(
    tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llamacpp, "_QUESTIONS", (("/health", 0.5),))
    engine = LlamaCppEngine("small", tiny_gguf, LlamaCppOptions(context=256, parallel=1))
    await engine.start()
    try:
        pid = engine.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        async with asyncio.timeout(60):
            with pytest.raises(EngineFailed, match="did not answer"):
                while True:  # the system takes its time to stop it
                    await engine.tokenize(["a"], special=False)
        await until_back(engine, 1)
        assert engine.pid != pid
        assert await engine.tokenize(["a"], special=False)
    finally:
        await engine.stop()


@pytest.mark.full
async def test_weights_that_are_gone_are_not_waited_for(tiny_gguf: Path, tmp_path: Path) -> None:
    weights = tmp_path / "m.gguf"
    weights.symlink_to(tiny_gguf)
    engine = LlamaCppEngine("small", weights, LlamaCppOptions(context=256, parallel=1))
    await engine.start()
    try:
        weights.unlink()
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
        while engine.status().state is not EngineState.ABSENT:
            await a_moment()
        assert f"{weights} does not exist any more" in engine.status().detail
        with pytest.raises(EngineFailed) as failure:
            await engine.tokenize(["a"], special=False)
        assert not failure.value.loading
    finally:
        await engine.stop()


async def test_another_file_in_the_place_of_the_weights_is_another_engine(
    tiny_gguf: Path, tmp_path: Path
) -> None:
    """A restart would put other weights beneath the template and vocabulary of the first."""
    weights, other = tmp_path / "m.gguf", tmp_path / "other.gguf"
    weights.symlink_to(tiny_gguf)
    shutil.copyfile(tiny_gguf, other)
    engine = LlamaCppEngine("small", weights, LlamaCppOptions(context=256, parallel=1))
    other.replace(weights)
    with pytest.raises(GivenUp, match="the weights have changed"):
        await engine.start()
    engine = LlamaCppEngine("small", weights, LlamaCppOptions(context=256, parallel=1))
    await engine.start()
    try:
        weights.unlink()
        weights.symlink_to(tiny_gguf)
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
        while engine.status().state is not EngineState.ABSENT:
            await a_moment()
            assert engine.status().restarts <= 1
        assert f"the weights have changed: {weights}" in engine.status().detail
    finally:
        await engine.stop()


async def test_weights_that_change_while_they_are_loaded_are_not_served(
    tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tmp_path / "m.gguf"
    weights.symlink_to(tiny_gguf)
    engine = LlamaCppEngine("small", weights, LlamaCppOptions(context=256, parallel=1))
    started, load_child = [], engine._load_child

    async def loaded() -> LlamaCppChild:
        started.append(await load_child())
        weights.unlink()
        shutil.copyfile(tiny_gguf, weights)
        return started[0]

    monkeypatch.setattr(engine, "_load_child", loaded)
    with pytest.raises(GivenUp, match="the weights have changed"):
        await engine.start()
    with pytest.raises(ProcessLookupError):
        os.kill(started[0].pid, 0)


@pytest.fixture
def short_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Use a short folder for temporary files; a Unix socket takes no long path."""
    with tempfile.TemporaryDirectory(prefix="e") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


async def test_stopped_leaves_no_process_and_no_socket(tiny_gguf: Path, short_folder: Path) -> None:
    engine = LlamaCppEngine("small", tiny_gguf, LlamaCppOptions(context=256, parallel=1))
    with pytest.raises(EngineFailed, match="not running") as failure:
        await engine.tokenize(["a"], special=False)
    assert not failure.value.loading
    await engine.start()
    pid = engine.pid
    assert pid is not None
    assert len(list(short_folder.iterdir())) == 1
    await engine.stop()
    assert not list(short_folder.iterdir())
    assert engine.status().state is EngineState.ABSENT
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.full
async def test_more_slots_than_a_batch_was_to_have_tokens(tiny_gguf: Path) -> None:
    engine = LlamaCppEngine("small", tiny_gguf, LlamaCppOptions(context=64, parallel=12, batch=4))
    await engine.start()
    made = await run(engine, TextRequest([1, 2, 3], 2, GREEDY, ignore_eos=True))
    assert len(tokens(made)) == 2
    await engine.stop()


@pytest.mark.full
async def test_proposed_tokens_change_no_answer(gguf: Path) -> None:
    """Repetition is proposed in all slots at once, and a batch holds it.

    Also where a slot held another prompt before.
    """
    counted = " ".join(f"{n} bottles of beer on the wall," for n in range(1, 9))
    alone = LlamaCppEngine("small", gguf, OPTIONS)
    await alone.start()
    prompt = await alone.tokenize([f"{counted} {counted} 1 bottles"], special=False)
    grammar = "%llguidance {}\nstart: /[0-9a-z ,]+ wall, 99 bottles/"
    requests = [
        TextRequest(prompt, 40, GREEDY),
        TextRequest(prompt, 30, GREEDY, grammar=grammar),
    ]
    wanted = [text(await run(alone, each)) for each in requests]
    await alone.stop()
    engine = LlamaCppEngine("small", gguf, structs.replace(OPTIONS, speculation="ngram", batch=2))
    await engine.start()
    made = await asyncio.gather(*(run(engine, each) for each in requests))
    assert [text(each) for each in made] == wanted
    assert engine.supervisor.restarts == 0
    said = list(range(1000, 1040))  # nothing like what the slot held before
    grammar = "%llguidance {}\nstart: " + " ".join(f"<[{id}]>" for id in said[13:30])
    again = TextRequest([*said, *said[:13]], 17, GREEDY, grammar=grammar)
    body = {**completion_body(again, 0), "stream": False}
    answer = await engine._client().ask("POST", "/completion", body)
    assert answer["tokens"] == said[13:30]
    assert answer["timings"]["draft_n_accepted"] > 0
    await engine.stop()


async def test_files_of_the_working_directory_are_not_its_modules(
    tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('not yours')", "utf-8")
    monkeypatch.chdir(tmp_path)
    engine = LlamaCppEngine("small", tiny_gguf, LlamaCppOptions(context=64, parallel=1))
    await engine.start()
    await engine.stop()


async def test_a_process_that_cannot_be_had_is_a_failed_start(
    tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
    engine = LlamaCppEngine("small", tiny_gguf, OPTIONS)
    with pytest.raises(EngineFailed, match=os.strerror(errno.EMFILE)):
        await engine.start()
    assert engine.status().state is EngineState.FAILED


async def test_a_file_cut_short_says_so(gguf: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.gguf"
    with gguf.open("rb") as file:
        short.write_bytes(file.read(20_000_000))
    with pytest.raises(EngineFailed, match="it ends at byte 20,000,000"):
        LlamaCppEngine("small", short, OPTIONS)


async def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "no.gguf").write_bytes(b"nothing of the kind")
    with pytest.raises(EngineFailed, match="not a usable GGUF file"):
        LlamaCppEngine("small", tmp_path / "no.gguf", OPTIONS)


async def test_a_load_that_takes_too_long_is_given_up(tiny_gguf: Path) -> None:
    engine = LlamaCppEngine("small", tiny_gguf, OPTIONS, load_seconds=0.001)
    with pytest.raises(EngineFailed, match=r"within 0\.001 s"):
        await engine.start()


@pytest.mark.full
async def test_one_request_may_have_the_context_of_the_model(
    tiny_gguf: Path, tmp_path: Path
) -> None:
    """Of a model of long texts, without a setting: more than a slot has of a shared cache."""
    write_plain(tmp_path / "long.gguf", tiny_gguf, trained=32_768)
    made = LlamaCppEngine("long", tmp_path / "long.gguf", LlamaCppOptions(threads=THREADS))
    await made.start()
    try:
        facts = await made.facts()
        assert facts.context_length == 32_768
        prompt = (await made.tokenize(["a word "] * 3000, special=False))[:9000]
        assert len(prompt) > 8192
        async with made.generate(TextRequest(prompt, 4, ignore_eos=True)) as outputs:
            *_, stopped = [each async for each in outputs]
        assert isinstance(stopped, Stopped)
        assert (stopped.prompt_tokens, stopped.completion_tokens) == (len(prompt), 4)
    finally:
        await made.stop()
