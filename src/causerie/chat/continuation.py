"""Going on with a reply that broke off elsewhere.

Its exact tokens are used where the vocabulary is the same; else it is written
anew in the model's own format. Either way the model's parser reads it first,
and only where that says what has gone out is there a way to go on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from causerie.chat.generation import Generation
from causerie.chat.plan import LoadedModel, Plan
from causerie.chat.resumed_reply import Diverged, ResumedReply
from causerie.chat.rewriting import writings
from causerie.chat.taint import Traced, joined, user_spans
from causerie.chat.template import Rendered
from causerie.engines.base import ModelFacts, TextEngine
from causerie.errors import UpstreamFailed
from causerie.protocol.partial import Partial, Trail
from causerie.protocol.request import ChatRequest


def knows(facts: ModelFacts, trail: Trail | None) -> bool:
    """Return whether the tokens of a trail mean the same to this model."""
    return trail is not None and bool(facts.words) and trail.vocabulary == facts.words


async def resumed(
    engine: TextEngine, request: ChatRequest, model: LoadedModel, plan: Plan, partial: Partial
) -> Generation:
    """Return the generation of the rest; raise ``UpstreamFailed`` if none is possible."""
    async for resumed in _ways(engine, request, model, plan, partial):
        try:
            generation = Generation(engine, request, plan, 0, resumed)
            left = len(resumed.texts) - generation.said
            if request.top_logprobs is None or not left:
                return generation
            # Text that was not sent is generated again, for nobody knows its log-probabilities.
            return Generation(engine, request, plan, 0, _without_last(resumed, left))
        except Diverged:
            continue
    raise UpstreamFailed("The reply broke off where this model cannot go on with it.")


async def _ways(
    engine: TextEngine, request: ChatRequest, model: LoadedModel, plan: Plan, partial: Partial
) -> AsyncIterator[ResumedReply]:
    """Yield the possible ways to resume the reply, the most reliable first."""
    if partial.trail is not None and knows(model.facts, partial.trail):
        tokens = partial.trail.tokens
        texts = tuple(await engine.texts(tokens, visible=plan.visible))
        resumed = ResumedReply(tokens, texts, partial, partial.completion)
        yield _without_last(resumed, _unfinished(resumed, model.facts))
    if plan.form.reasoning is None and (partial.text or partial.calls):
        partial = replace(partial, reasoning="")  # the model has no place for it
    form = plan.form
    if plan.rendered.text.endswith(form.answer_open):
        form = replace(form, answer_open="")
    called = bool(partial.text and partial.calls)
    for text in writings(
        form,
        partial,
        reasoning_open=plan.reasoning_open,
        leading=plan.leading,
        earlier=sum(len(message.tool_calls) for message in request.messages),
        between=await model.renderer.before_call(request) if called else None,
    ):
        tokens = await _tokens(engine, model, plan, text, request.cache_scope)
        yield ResumedReply(tokens, (str.__str__(text),), partial, partial.completion)


def _unfinished(resumed: ResumedReply, facts: ModelFacts) -> int:
    """Return the number of tokens at the end that only begin a character."""
    control = set(facts.control_tokens.values())
    count = 0
    for token, text in zip(reversed(resumed.tokens), reversed(resumed.texts), strict=True):
        if text or token in control:
            break
        count += 1
    return count


def _without_last(resumed: ResumedReply, count: int) -> ResumedReply:
    kept = len(resumed.tokens) - count
    return ResumedReply(
        resumed.tokens[:kept], resumed.texts[:kept], resumed.partial, max(resumed.made - count, 0)
    )


async def _tokens(
    engine: TextEngine, model: LoadedModel, plan: Plan, text: Traced, scope: str
) -> tuple[int, ...]:
    """Return the tokens of the text after the prompt, if the prompt's tokens stay the same."""
    prompt = plan.rendered
    shifted = tuple(
        (start + len(prompt.text), stop + len(prompt.text)) for start, stop in user_spans(text)
    )
    both = Rendered(str.__str__(joined((prompt.text, text))), prompt.user + shifted)
    ids = (await model.encoder.encode(both, engine, scope=scope)).ids
    size = len(plan.prompt)
    if tuple(ids[:size]) == plan.prompt:
        return tuple(ids[size:])
    alone = Rendered(str.__str__(text), user_spans(text))
    return tuple((await model.encoder.encode(alone, engine, scope=scope)).ids)
