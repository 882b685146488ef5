"""Contract of every text engine: ``engines/base.py``, checked for each of ours."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest
from casekit import first_of
from enginekit import CONTEXT, SLOTS, Subject

from causerie.engines.base import EngineState, NotAdmitted, PromptTooLong, TextRequest, Token
from causerie.protocol.parameters import SamplingParams

pytestmark = pytest.mark.asyncio(loop_scope="module")

GREEDY = SamplingParams(temperature=0.0)
MIXED = "naïve: 日本語 🎉 ok"


def says(text: str) -> str:
    """A grammar that admits one text."""
    return f'%llguidance {{}}\nstart: "{text}"'


async def test_facts_describe_the_model(subject: Subject) -> None:
    facts = subject.facts
    assert facts.template
    assert facts.context_length == CONTEXT
    assert facts.parallel == subject.engine.slots == SLOTS
    assert facts.fingerprint
    assert facts.words
    assert facts.size is not None
    assert max(facts.control_tokens.values()) < facts.size
    assert facts.control_tokens[facts.eos_token] in facts.end_tokens
    assert {"<|im_start|>", "<|im_end|>"} <= set(facts.control_tokens)


async def test_a_started_engine_is_ready(subject: Subject) -> None:
    status = subject.engine.status()
    assert (status.state, status.slots, status.busy) == (EngineState.READY, SLOTS, 0)


async def test_control_text_is_a_token_only_where_it_may_be(subject: Subject) -> None:
    control = set(subject.facts.control_tokens.values())
    for text, id in subject.facts.control_tokens.items():
        assert await subject.engine.tokenize([text], special=True) == [id]
        forged = await subject.engine.tokenize([f"x{text}y"], special=False)
        assert not control & set(forged), text


async def test_ids_pass_through_in_their_places(subject: Subject) -> None:
    id = subject.facts.control_tokens["<|im_end|>"]
    hello = await subject.engine.tokenize(["Hello"], special=False)
    world = await subject.engine.tokenize(["world"], special=False)
    got = await subject.engine.tokenize([id, "Hello", id, id, "world"], special=False)
    assert got == [id, *hello, id, id, *world]


async def test_nothing_is_nothing(subject: Subject) -> None:
    assert await subject.engine.tokenize([], special=True) == []
    assert await subject.engine.tokenize([""], special=True) == []


@pytest.mark.parametrize("count", [1, 7])
async def test_max_tokens_is_exact(subject: Subject, count: int) -> None:
    prompt = await subject.prompt("Tell me a long story about the sea.")
    run = await subject.run(TextRequest(prompt, count, GREEDY))
    assert len(run.tokens) == count
    assert run.stopped.reason == "length"
    assert run.stopped.completion_tokens == count
    assert run.stopped.prompt_tokens == len(prompt)


async def test_a_text_that_ends_is_stopped(subject: Subject) -> None:
    prompt = await subject.prompt("What is 2+2? Answer with one word.")
    run = await subject.run(TextRequest(prompt, 200, GREEDY))
    assert run.stopped.reason == "stop"
    assert run.stopped.completion_tokens == len(run.tokens) < 200
    assert run.text
    assert "<|im_end|>" not in run.text


async def test_ignore_eos_goes_on(subject: Subject) -> None:
    prompt = await subject.prompt("What is 2+2? Answer with one word.")
    run = await subject.run(TextRequest(prompt, 60, GREEDY, ignore_eos=True))
    assert (run.stopped.reason, run.stopped.completion_tokens) == ("length", 60)
    assert not set(run.ids) & set(subject.facts.end_tokens)


async def test_text_of_tokens_is_the_text(subject: Subject) -> None:
    prompt = await subject.prompt("Hi")
    run = await subject.run(TextRequest(prompt, 100, grammar=says(MIXED), logprobs=0))
    assert run.text == MIXED
    assert b"".join(token.raw for token in run.tokens) == MIXED.encode()
    assert run.stopped.reason == "stop"


async def test_half_a_character_adds_no_text(subject: Subject) -> None:
    rare = "𓂀"
    assert len(await subject.engine.tokenize([rare], special=False)) > 1
    prompt = await subject.prompt("Hi")
    run = await subject.run(TextRequest(prompt, 100, grammar=says(rare)))
    texts = [token.text for token in run.tokens if token.id not in subject.facts.end_tokens]
    assert len(texts) > 1
    assert texts == [*[""] * (len(texts) - 1), rare]


async def test_control_tokens_show_only_when_asked_for(subject: Subject) -> None:
    id = subject.facts.control_tokens["<|im_start|>"]
    grammar = f'%llguidance {{}}\nstart: "a" <[{id}]> "b"'
    prompt = await subject.prompt("Hi")
    hidden = await subject.run(TextRequest(prompt, 10, grammar=grammar))
    shown = await subject.run(TextRequest(prompt, 10, grammar=grammar, visible=("<|im_start|>",)))
    assert id in hidden.ids
    assert id in shown.ids
    assert (hidden.text, shown.text) == ("ab", "a<|im_start|>b")


@pytest.mark.parametrize(
    ("grammar", "admitted"),
    [
        ('start: "yes" | "no"', lambda text: text in ("yes", "no")),
        ("start: /[0-9]{3}/", lambda text: len(text) == 3 and text.isdecimal()),
    ],
)
async def test_a_grammar_is_followed(subject: Subject, grammar: str, admitted: object) -> None:
    assert callable(admitted)
    prompt = await subject.prompt("Tell me a story.")
    run = await subject.run(TextRequest(prompt, 20, grammar="%llguidance {}\n" + grammar))
    assert run.stopped.reason == "stop"
    assert admitted(run.text)


async def test_a_grammar_that_is_cut_is_cut_by_length(subject: Subject) -> None:
    prompt = await subject.prompt("Hi")
    run = await subject.run(TextRequest(prompt, 3, grammar=says("one two three four five six")))
    assert (run.stopped.reason, len(run.tokens)) == ("length", 3)
    assert "one two three four five six".startswith(run.text)


JSON = """%llguidance {}
start: %json {"x-guidance":{"item_separator":", ","key_separator":": ","whitespace_flexible":false},
"type":"object","properties":{"name":{"type":"string","maxLength":12},"size":{"enum":["s","m"]}},
"required":["name","size"],"additionalProperties":false}"""


@pytest.mark.parametrize("grammar", first_of([says(MIXED), JSON]))
async def test_a_grammar_goes_on_behind_what_it_has_accepted(
    subject: Subject, grammar: str
) -> None:
    prompt = await subject.prompt("Tell me a story.")
    whole = await subject.run(TextRequest(prompt, 60, GREEDY, grammar))
    assert whole.stopped.reason == "stop"
    texts = await subject.engine.texts(whole.ids)
    for cut in range(1, len(whole.ids)):
        accepted = tuple(whole.ids[:cut])
        if not texts[cut - 1]:
            continue  # in the middle of a character
        rest = await subject.run(
            TextRequest([*prompt, *accepted], 60 - cut, GREEDY, grammar, accepted=accepted)
        )
        assert "".join(texts[:cut]) + rest.text == whole.text
        assert rest.stopped.reason == "stop"
        assert rest.stopped.completion_tokens == len(rest.tokens)
        assert rest.stopped.prompt_tokens == len(prompt) + cut


async def test_a_grammar_goes_on_behind_a_text(subject: Subject) -> None:
    grammar = says("Zo\u00eb: one two")
    prompt = [*await subject.prompt("Hi"), *await subject.engine.tokenize(["..."], special=False)]
    run = await subject.run(TextRequest(prompt, 40, GREEDY, grammar, resumed="Zo\u00eb: o"))
    assert (run.text, run.stopped.reason) == ("ne two", "stop")


async def test_a_grammar_that_goes_on_is_cut_by_length(subject: Subject) -> None:
    prompt = await subject.prompt("Hi")
    begun = tuple(await subject.engine.tokenize(["one two"], special=False))
    grammar = says("one two three four five six")
    request = TextRequest([*prompt, *begun], 2, GREEDY, grammar, accepted=begun)
    run = await subject.run(request)
    assert (run.stopped.reason, len(run.tokens)) == ("length", 2)
    assert " three four five six".startswith(run.text)


async def test_what_a_grammar_cannot_have_accepted_is_refused_on_entering(
    subject: Subject,
) -> None:
    begun = tuple(await subject.engine.tokenize(["two"], special=False))
    request = TextRequest([*await subject.prompt("Hi"), *begun], 9, grammar=says("one"))
    with pytest.raises(NotAdmitted):
        async with subject.engine.generate(replace(request, accepted=begun)):
            pytest.fail("it was accepted")
    with pytest.raises(NotAdmitted):
        async with subject.engine.generate(replace(request, resumed="two")):
            pytest.fail("it was accepted")
    assert subject.engine.status().busy == 0


async def test_texts_are_what_generated_tokens_say(subject: Subject) -> None:
    start = subject.facts.control_tokens["<|im_start|>"]
    ids = [*await subject.engine.tokenize([MIXED], special=False), start]
    hidden = await subject.engine.texts(ids)
    shown = await subject.engine.texts(ids, visible=["<|im_start|>"])
    assert len(hidden) == len(ids)
    assert ("".join(hidden), "".join(shown)) == (MIXED, MIXED + "<|im_start|>")


async def test_no_logprobs_unless_asked_for(subject: Subject) -> None:
    run = await subject.run(TextRequest(await subject.prompt("Hi"), 3))
    assert all(token.logprob is None and token.top == () for token in run.tokens)


@pytest.mark.parametrize("count", [0, 1, 5])
async def test_logprobs_and_alternatives(subject: Subject, count: int) -> None:
    if count:
        subject.needs("top_logprobs")
    prompt = await subject.prompt("Tell me a story.")
    run = await subject.run(TextRequest(prompt, 5, GREEDY, logprobs=count))
    for token in run.tokens:
        assert token.logprob is not None
        assert -math.inf < token.logprob <= 0
        assert len(token.top) == count
        assert all(one.logprob >= other.logprob for one, other in pairwise(token.top))
        if count:  # greedy: the likeliest is the one that was drawn
            assert (token.top[0].id, token.top[0].raw) == (token.id, token.raw)
            assert token.top[0].logprob == pytest.approx(token.logprob, abs=1e-4)


@pytest.mark.parametrize(
    "odd",
    [
        {"temperature": 1e-50},
        {"top_p": 1e-50},
        {"min_p": 1.0},
        {"repetition_penalty": 1e-50},
        {"repetition_penalty": 10.0, "top_k": 2**31 - 1},
    ],
)
async def test_what_the_interface_allows_is_answered(
    subject: Subject, odd: dict[str, float]
) -> None:
    """Engines compute in single precision, where some of these are 0 or 1."""
    made = await subject.run(
        TextRequest(await subject.prompt("Hello"), 1, msgspec.convert(odd, SamplingParams))
    )
    assert len(made.tokens) == 1


async def test_a_seed_repeats(subject: Subject) -> None:
    prompt = await subject.prompt("Tell me a story.")
    request = TextRequest(prompt, 20, SamplingParams(temperature=1.0, seed=2**31 + 5))
    _ = await subject.run(request)  # from here on the prompt is in the cache
    first, second = await subject.run(request), await subject.run(request)
    assert first.ids == second.ids


async def test_a_bias_forces_a_token(subject: Subject) -> None:
    subject.needs("logit_bias")
    (id,) = await subject.engine.tokenize(["a"], special=False)
    prompt = await subject.prompt("Hi")
    bias = SamplingParams(temperature=0.0, logit_bias={id: 100.0})
    run = await subject.run(TextRequest(prompt, 4, bias))
    assert (run.ids, run.text) == ([id] * 4, "aaaa")


async def test_a_bias_bans_the_end(subject: Subject) -> None:
    subject.needs("logit_bias")
    prompt = await subject.prompt("What is 2+2? Answer with one word.")
    bias = SamplingParams(
        temperature=0.0, logit_bias=dict.fromkeys(subject.facts.end_tokens, -100.0)
    )
    run = await subject.run(TextRequest(prompt, 40, bias))
    assert (run.stopped.reason, len(run.tokens)) == ("length", 40)


async def test_what_is_in_the_cache_is_counted(subject: Subject) -> None:
    subject.needs("cached_tokens")
    asked = await subject.prompt("A question that nobody has asked before: why is the sky blue?")
    prompt = asked * (200 // len(asked) + 1)  # some engines keep whole blocks of 128 only
    request = TextRequest(prompt, 2, GREEDY)
    first, second = await subject.run(request), await subject.run(request)
    assert first.stopped.cached_tokens < len(prompt) // 2
    assert len(prompt) // 2 < second.stopped.cached_tokens < len(prompt)
    for run in (first, second):
        assert all(run.stopped.cached_tokens == it.cached_tokens for it in run.started)


async def test_a_prompt_that_does_not_fit_is_refused_on_entering(subject: Subject) -> None:
    (id,) = await subject.engine.tokenize(["a"], special=False)
    with pytest.raises(PromptTooLong) as refusal:
        async with subject.engine.generate(TextRequest([id] * (CONTEXT + 1), 1)):
            pytest.fail("it was accepted")
    assert (refusal.value.tokens, refusal.value.context_length) == (CONTEXT + 1, CONTEXT)
    assert subject.engine.status().busy == 0


async def test_a_full_context_ends_a_text(subject: Subject) -> None:
    (id,) = await subject.engine.tokenize(["a"], special=False)
    request = TextRequest([id] * (CONTEXT - 10), 100, GREEDY, ignore_eos=True)
    run = await subject.run(request)
    assert run.stopped.reason == "length"
    assert 1 <= run.stopped.completion_tokens <= 11


async def test_generations_run_side_by_side(subject: Subject) -> None:
    prompt = await subject.prompt("Hi")
    texts = [f"I am number {n} and nobody else" for n in range(SLOTS * 2)]
    async with asyncio.TaskGroup() as group:
        runs = [
            group.create_task(subject.run(TextRequest(prompt, 50, grammar=says(text))))
            for text in texts
        ]
    assert [run.result().text for run in runs] == texts


async def test_an_abandoned_generation_makes_way(subject: Subject) -> None:
    prompt = await subject.prompt("Tell me a story.")
    for _ in range(SLOTS + 1):
        async with subject.engine.generate(TextRequest(prompt, 400, ignore_eos=True)) as output:
            async for item in output:
                if isinstance(item, Token):
                    break
            assert subject.engine.status().busy == 1
        assert subject.engine.status().busy == 0
    assert len((await subject.run(TextRequest(prompt, 2, ignore_eos=True))).tokens) == 2


async def test_a_cancelled_generation_makes_way(subject: Subject) -> None:
    prompt = await subject.prompt("Tell me a story.")
    token_seen = asyncio.Event()

    async def generate() -> None:
        async with subject.engine.generate(TextRequest(prompt, 400, ignore_eos=True)) as output:
            async for item in output:
                if isinstance(item, Token):
                    token_seen.set()
                    await asyncio.Event().wait()

    task = asyncio.get_running_loop().create_task(generate())
    await token_seen.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert subject.engine.status().busy == 0


async def test_a_failure_of_the_caller_makes_way(subject: Subject) -> None:
    prompt = await subject.prompt("Tell me a story.")
    with pytest.raises(ZeroDivisionError):
        async with subject.engine.generate(TextRequest(prompt, 400, ignore_eos=True)) as output:
            async for _ in output:
                raise ZeroDivisionError
    assert subject.engine.status().busy == 0
