"""A text engine as a target for chat: requests in, events out; also for a reply that broke off
elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace

from msgspec import structs

from causerie.chat import thinking
from causerie.chat.compiler import Compiler
from causerie.chat.conversations import Conversations, asked_before
from causerie.chat.encoding import PromptEncoder
from causerie.chat.formats.format import ModelFormat
from causerie.chat.formats.registry import by_name, detect
from causerie.chat.generation import Generation, engine_failures
from causerie.chat.plan import LoadedModel, Plan, make_plan, prompt_tokens
from causerie.chat.rendering import MakeRenderer, in_process
from causerie.chat.resumed_reply import Diverged, ResumedReply, can_write, writings
from causerie.chat.taint import Traced, joined, user_spans
from causerie.chat.template import Rendered
from causerie.chat.thinking import default_sampling
from causerie.chat.verification import Enforced, verified
from causerie.engines.base import ModelFacts, TextEngine
from causerie.errors import InvalidRequest, UpstreamFailed
from causerie.protocol.events import Batch, CacheReport, CacheReporter, Partial, Trail, Usage
from causerie.protocol.known_fields import KNOWN, refusal
from causerie.protocol.parameters import ModelSampling, SamplingDefaults
from causerie.protocol.request import ChatRequest, image_not_fetched, images, without_billing_line

BILLING_LINE = "billing_line"
TOOL_ORDER = "tool_order"


def without_changing_parts(
    request: ChatRequest, omit: Collection[str]
) -> tuple[ChatRequest, list[str]]:
    """Return the request without what is named in ``omit``, and a report of the changes."""
    changes: list[str] = []
    if BILLING_LINE in omit:
        messages = without_billing_line(request.messages)
        if messages is not request.messages:
            request = structs.replace(request, messages=messages, characters=None)
            changes.append("billing line of the system prompt left out")
    if TOOL_ORDER in omit:
        tools = tuple(sorted(request.tools, key=lambda tool: tool.name))
        if tools != request.tools:
            request = structs.replace(request, tools=tools)
            changes.append("tools sorted by name")
    return request, changes


# The exact tokens of a reply that broke off are used where the vocabulary is the same; else it is
# written anew in the model's own format. The model's parser reads it first, and only a reading that
# equals what the client has is continued.


def knows(facts: ModelFacts, trail: Trail | None) -> bool:
    """Return whether the tokens of a trail mean the same to this model."""
    return trail is not None and bool(facts.words) and trail.vocabulary == facts.words


async def resumed(
    engine: TextEngine, request: ChatRequest, model: LoadedModel, plan: Plan, partial: Partial
) -> Generation:
    """Return the generation of the rest; raise ``UpstreamFailed`` if none is possible."""
    async for resumed in _resumed_replies(engine, request, model, plan, partial):
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


async def _resumed_replies(
    engine: TextEngine, request: ChatRequest, model: LoadedModel, plan: Plan, partial: Partial
) -> AsyncIterator[ResumedReply]:
    if partial.trail is not None and knows(model.facts, partial.trail):
        tokens = partial.trail.tokens
        texts = tuple(await engine.texts(tokens, visible=plan.visible))
        resumed = ResumedReply(tokens, texts, partial, partial.completion)
        yield _without_last(resumed, _incomplete_tokens(resumed, model.facts))
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
        tokens = await _tokens_behind_prompt(engine, model, plan, text, request.cache_scope)
        yield ResumedReply(tokens, (str.__str__(text),), partial, partial.completion)


def _incomplete_tokens(resumed: ResumedReply, facts: ModelFacts) -> int:
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


async def _tokens_behind_prompt(
    engine: TextEngine, model: LoadedModel, plan: Plan, text: Traced, scope: str
) -> tuple[int, ...]:
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


@dataclass(frozen=True, slots=True)
class TextChatOptions:
    """Settings of a model beyond its weights."""

    format: str | None = None
    """Overrides the detected format."""
    template: str | None = None
    """Replaces the model's own template."""
    max_output_tokens: int | None = None
    """Limit for requests that set none."""
    sampling: ModelSampling = SamplingDefaults()  # noqa: RUF009 - frozen
    """Goes before the model's own recommendation."""
    omit: tuple[str, ...] = ()
    """What clients change at every turn, to be left out of prompts."""


@dataclass(frozen=True, slots=True)
class ChatReply:
    """An answer under way: its events, who makes it, the tokens used so far, what was dropped.

    ``cache_report`` says what the engine reused, once it reads the prompt; it takes the
    name of the caller.
    """

    events: AsyncGenerator[Batch, None]
    fingerprint: str
    usage: Callable[[], Usage]
    trail: Callable[[], Trail | None]
    changes: Sequence[str]
    cache_report: CacheReporter
    on_arrival: None = None
    verbatim: bool = False


Reserve = Callable[[int, int], AbstractAsyncContextManager[None]]
"""Holds room in the engine's cache: for so many choices, of so many tokens each.

Entering waits for it, and raises ``ServiceError`` where that takes too long.
"""


def without_limit(choices: int, tokens: int) -> AbstractAsyncContextManager[None]:
    """Hold nothing: for engines that see to their caches themselves."""
    return nullcontext()


class TextChat:
    """Chat completions on one text engine, which get from ``reserve`` the room that they need."""

    def __init__(
        self,
        engine: TextEngine,
        grammars: Compiler,
        options: TextChatOptions = TextChatOptions(),
        renderer: MakeRenderer = in_process,
        reserve: Reserve = without_limit,
    ) -> None:
        self._engine = engine
        self._reserve = reserve
        self._grammars = grammars
        self._options = options
        self._renderer = renderer
        self._loaded: LoadedModel | None = None
        self._conversations = Conversations()

    def model(self, facts: ModelFacts) -> LoadedModel:
        """Return the model with these facts; raise :class:`ValueError` for an invalid template."""
        if self._loaded is None or self._loaded.facts is not facts:
            self._loaded = _loaded(facts, self._options, self._renderer)
        return self._loaded

    def default_sampling(self, facts: ModelFacts) -> SamplingDefaults:
        """Return the sampling of a request that sets none of it."""
        return default_sampling(self._options.sampling, facts.sampling)

    @asynccontextmanager
    async def generate(
        self, request: ChatRequest, partial: Partial | None = None
    ) -> AsyncIterator[ChatReply]:
        """Answer a request; entering raises whatever can be refused before the first token."""
        dropped = _dropped_parameters(request)
        request, omitted = without_changing_parts(request, self._options.omit)
        with engine_failures(started=False):
            model = self.model(await self._engine.facts())
            request, unseen = _checked_images(request, model.facts)
            plan, choices = await self._prepare(request, model, partial)

        def usage() -> Usage:
            return _usage(plan, choices)

        def trail() -> Trail | None:
            known = model.facts.words and len(choices) == 1
            return Trail(model.facts.words, choices[0].tokens) if known else None

        asked = asked_before(request, plan.prompt) if partial is None else None

        caller: str | None = None

        def cache_report(by: str) -> CacheReport | None:
            nonlocal caller
            caller, cached = by, choices[0].cached
            if asked is None or cached is None:
                return None
            return self._conversations.report(by, request, asked, cached)

        source = choices[0].events(usage) if len(choices) == 1 else _merged_events(choices, usage)
        if plan.grammar is not None:
            source = verified(source, _enforced(request, plan), choices, plan.resumed, partial)
        # What is left of a reply that another began may be as long as the context lets it be.
        most = len(plan.prompt) + (plan.limit if partial is None else plan.room)
        async with self._reserve(request.n, most), aclosing(source) as events:
            changes = [*dropped, *omitted, *unseen, *plan.changes]
            yield ChatReply(events, model.facts.fingerprint, usage, trail, changes, cache_report)
        if asked is not None and caller is not None and choices[0].asked:
            # What the engine has computed for a request that it has answered.
            reply = choices[0]
            self._conversations.answered(
                caller, asked, reply.tokens, reply.reasoning, cut=reply.cut
            )
        if partial is None and plan.prompt_end is not None:
            for choice in choices:
                model.encoder.keep_reply(plan.prompt_end, *choice.written)

    retries = 0  # its engine is restarted by whoever supervises it

    async def count_tokens(self, request: ChatRequest) -> int:
        """Return the tokens of the prompt; raise whatever its rendering refuses."""
        request, _ = without_changing_parts(request, self._options.omit)
        with engine_failures(started=False):
            model = self.model(await self._engine.facts())
            request, _ = _checked_images(request, model.facts)
            return await prompt_tokens(request, model, self._engine)

    def continues(self, request: ChatRequest, partial: Partial) -> bool:
        """Return whether the model can continue the partial reply.

        Before the model is loaded, what depends on its weights is assumed to be possible.
        """
        if request.n != 1:
            return False
        if self._loaded is None or knows(self._loaded.facts, partial.trail):
            return True
        try:
            form = thinking.plan(self._loaded.form, request.thinking).form
        except InvalidRequest:
            return False
        return can_write(form, partial)

    async def _prepare(
        self, request: ChatRequest, model: LoadedModel, partial: Partial | None
    ) -> tuple[Plan, list[Generation]]:
        several = partial is not None and len(partial.calls) > 1
        if several and request.parallel_tool_calls is None:
            # The target that began the reply is known to write several.
            request = structs.replace(request, parallel_tool_calls=True)
        plan = await make_plan(request, model, self._engine, partial)
        facts = model.facts
        param = "response_format" if request.output is not None else "tools"
        for grammar in (plan.grammar, plan.answer_grammar):
            if grammar is not None:
                await self._grammars.check(
                    grammar, vocabulary=facts.vocabulary, words=facts.words, param=param
                )
        if partial is not None:
            return plan, [await resumed(self._engine, request, model, plan, partial)]
        return plan, [Generation(self._engine, request, plan, n) for n in range(request.n)]


def _enforced(request: ChatRequest, plan: Plan) -> Enforced:
    document = plan.answer.checked if plan.answer else None
    required = request.tool_choice.mode == "required"
    return Enforced(request.output, document, plan.functions.arguments, required)


def _usage(plan: Plan, choices: Sequence[Generation]) -> Usage:
    if not any(choice.asked for choice in choices):
        return Usage(0, 0)
    return Usage(
        prompt=len(plan.prompt),
        completion=sum(choice.completion for choice in choices),
        cached=min(choices[0].cached or 0, len(plan.prompt)),
        reasoning=sum(choice.reasoning for choice in choices),
        discarded=sum(choice.discarded for choice in choices),
    )


def _loaded(facts: ModelFacts, options: TextChatOptions, renderer: MakeRenderer) -> LoadedModel:
    source = options.template or facts.template
    form = by_name(options.format) if options.format else detect(source)
    own = source + "".join(_texts(form))
    return LoadedModel(
        facts=facts,
        form=form,
        renderer=renderer(source, form, bos_token=facts.bos_token, eos_token=facts.eos_token),
        encoder=PromptEncoder(facts.control_tokens, own),
        max_output_tokens=options.max_output_tokens,
        sampling=options.sampling,
        shows_documents="documents" in source,
    )


def _texts(form: ModelFormat) -> list[str]:
    marks = form.reasoning
    return [*marks.opens, *marks.closes] if marks else []


def _dropped_parameters(request: ChatRequest) -> Sequence[str]:
    unlisted = request.unlisted
    if unlisted is None:
        return ()
    if unlisted.names and request.strict and (refused := refusal(unlisted.body, KNOWN)):
        raise refused
    return unlisted.changes


def _checked_images(request: ChatRequest, facts: ModelFacts) -> tuple[ChatRequest, Sequence[str]]:
    changes: Sequence[str] = ()
    if not facts.vision:
        request, changes = request.without_optional_images()
    for param, image in images(request.messages):
        if not facts.vision:
            raise InvalidRequest(
                "This model takes no images; send text parts only.",
                code="unsupported_parameter",
                param=param,
            )
        if not image.enclosed:
            raise image_not_fetched(param)
    return request, changes


async def _merged_events(
    choices: Sequence[Generation], usage: Callable[[], Usage]
) -> AsyncGenerator[Batch, None]:
    queue: asyncio.Queue[Batch | None] = asyncio.Queue(maxsize=64)

    async def run(choice: Generation) -> None:
        async with aclosing(choice.events()) as events:
            async for batch in events:
                await queue.put(batch)
        await queue.put(None)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run(choice)) for choice in choices]
            done = 0
            while done < len(tasks):
                batch = await queue.get()
                if batch is None:
                    done += 1
                else:
                    yield batch
    except BaseExceptionGroup as failures:
        first = failures.exceptions[0]
        raise first from first.__cause__
    yield [usage()]
