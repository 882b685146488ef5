"""A text engine as a target for chat, which can also continue a reply that broke off elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Any

import structlog
from msgspec import Struct, structs

from causerie.chat import thinking
from causerie.chat.compiler import Compiler, Vocabulary
from causerie.chat.compiler_worker import TOO_COMPLEX
from causerie.chat.conversations import Conversations, asked_before
from causerie.chat.encoding import PromptEncoder
from causerie.chat.formats.registry import by_name, detect
from causerie.chat.generation import Generation, engine_failures, given_up
from causerie.chat.images import ImageReader
from causerie.chat.plan import Images, LoadedModel, Plan, make_plan, prompt_tokens
from causerie.chat.rendering import MakeRenderer, in_process
from causerie.chat.resumed_reply import Diverged, ResumedReply, can_write, writings
from causerie.chat.schema.compiled import Work, WorkExceeded
from causerie.chat.taint import Traced, user_spans
from causerie.chat.template import Rendered
from causerie.chat.template_worker import TemplateSource
from causerie.chat.validation import decided
from causerie.engines.base import ModelFacts, TextEngine
from causerie.errors import InternalError, InvalidRequest, Overloaded, UpstreamFailed
from causerie.protocol.body import is_object
from causerie.protocol.events import (
    Batch,
    CacheReport,
    CacheReporter,
    Event,
    Finished,
    Partial,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Trail,
    Usage,
)
from causerie.protocol.known_fields import KNOWN, Known, refusal
from causerie.protocol.parameters import ModelSampling, SamplingDefaults
from causerie.protocol.reasoning import unreadable
from causerie.protocol.request import ChatRequest, Unread, images, not_fetched, without_billing_line

log = structlog.get_logger(__name__)

BILLING_LINE = "billing_line"
TOOL_ORDER = "tool_order"


def without_changing_parts(
    request: ChatRequest, omit: Collection[str]
) -> tuple[ChatRequest, list[str]]:
    """Return the request without the changing parts named in ``omit``, and what was changed."""
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
    request: ChatRequest, model: LoadedModel, plan: Plan, partial: Partial
) -> Generation:
    """Return the generation that continues ``partial``; raise ``UpstreamFailed`` if none can."""
    async for resumed in _propose_resumed_replies(request, model, plan, partial):
        try:
            generation = Generation(model.engine, request, plan, 0, resumed)
            left = len(resumed.texts) - generation.said
            if request.top_logprobs is None or not left:
                return generation
            # Text that was not sent is generated again, for nobody knows its log-probabilities.
            return Generation(model.engine, request, plan, 0, _drop_last_tokens(resumed, left))
        except Diverged:
            continue
    raise UpstreamFailed("The reply broke off where this model cannot go on with it.")


async def _propose_resumed_replies(
    request: ChatRequest, model: LoadedModel, plan: Plan, partial: Partial
) -> AsyncIterator[ResumedReply]:
    if partial.trail is not None and knows(model.facts, partial.trail):
        tokens = partial.trail.tokens
        texts = tuple(await model.engine.texts(tokens, visible=plan.visible))
        resumed = ResumedReply(tokens, texts, partial, partial.completion)
        # The last tokens may be a part of a character, which has no text yet.
        control = set(model.facts.control_tokens.values())
        pairs = zip(reversed(tokens), reversed(texts), strict=True)
        silent = takewhile(lambda pair: not (pair[1] or pair[0] in control), pairs)
        yield _drop_last_tokens(resumed, sum(1 for _ in silent))
    form = plan.form
    if plan.rendered.text.endswith(form.answer_open):
        form = structs.replace(form, answer_open="")
    called = bool(partial.text and partial.calls)
    for text in writings(
        form,
        partial,
        reasoning_open=plan.reasoning_open,
        leading=plan.leading,
        earlier=sum(len(message.tool_calls) for message in request.messages),
        between=model.renderer.before_call if called else None,
    ):
        tokens = await _encode_behind_prompt(model, plan, text, request.cache_scope)
        yield ResumedReply(tokens, (str.__str__(text),), partial, partial.completion)


def _drop_last_tokens(resumed: ResumedReply, count: int) -> ResumedReply:
    kept = len(resumed.tokens) - count
    return ResumedReply(
        resumed.tokens[:kept], resumed.texts[:kept], resumed.partial, max(resumed.made - count, 0)
    )


async def _encode_behind_prompt(
    model: LoadedModel, plan: Plan, reply_text: Traced, cache_scope: str
) -> tuple[int, ...]:
    prompt = plan.rendered
    size = len(prompt.text)
    shifted = tuple((start + size, stop + size) for start, stop in user_spans(reply_text))
    both = Rendered(prompt.text + str.__str__(reply_text), prompt.user + shifted)
    ids = (await model.encoder.encode(both, model.engine, scope=cache_scope)).ids
    if tuple(ids[: len(plan.prompt)]) == plan.prompt:
        return tuple(ids[len(plan.prompt) :])
    alone = Rendered(str.__str__(reply_text), user_spans(reply_text))
    return tuple((await model.encoder.encode(alone, model.engine, scope=cache_scope)).ids)


class TextChatOptions(Struct, frozen=True):
    format: str | None = None  # overrides the detected format
    template: str | None = None  # replaces the model's own template
    max_output_tokens: int | None = None  # limit for requests that set none
    sampling: ModelSampling = SamplingDefaults()  # goes before the model's own recommendation
    omit: tuple[str, ...] = ()  # what clients change at every turn, to be left out of prompts


class ChatReply(Struct, frozen=True):
    """An answer under way: its events, its model's fingerprint, tokens used, what was dropped.

    ``cache_report`` says what the engine reused, once it reads the prompt; it takes the
    name of the caller.
    """

    events: AsyncGenerator[Batch, None]
    fingerprint: str
    usage: Callable[[], Usage]
    trail: Callable[[], Trail | None]
    changes: Sequence[str]
    cache_report: CacheReporter | None = None
    on_arrival: None = None
    verbatim: bool = False


Reserve = Callable[[int, int], AbstractAsyncContextManager[None]]
"""Holds room in the engine's cache: for so many choices, of so many tokens each.

Entering waits for it, and raises ``ServiceError`` where that takes too long.
"""


def without_limit(choices: int, tokens: int) -> AbstractAsyncContextManager[None]:
    """Reserve no room: for engines that manage their caches themselves."""
    return nullcontext()


@dataclass(eq=False)
class TextChat:
    """Answers chat completions on one text engine; ``reserve`` holds room for each in its cache."""

    engine: TextEngine
    grammars: Compiler
    options: TextChatOptions = field(default_factory=TextChatOptions)
    renderer: MakeRenderer = in_process
    reserve: Reserve = without_limit
    images: ImageReader = field(default_factory=ImageReader)
    _loaded_model: LoadedModel | None = field(init=False, default=None)
    _conversations: Conversations = field(init=False, default_factory=Conversations)

    def model(self, facts: ModelFacts) -> LoadedModel:
        """Return the model with these facts; raise :class:`ValueError` for an invalid template."""
        if self._loaded_model is None or self._loaded_model.facts is not facts:
            options = self.options
            source = options.template or facts.template
            form = by_name(options.format) if options.format else detect(source)
            own = source + "".join((*form.reasoning.opens, *form.reasoning.closes))
            template = TemplateSource(source, facts.bos_token, facts.eos_token, form.name)
            self._loaded_model = LoadedModel(
                engine=self.engine,
                facts=facts,
                form=form,
                renderer=self.renderer(template),
                encoder=PromptEncoder(facts.control_tokens, own),
                max_output_tokens=options.max_output_tokens,
                sampling=options.sampling,
                shows_documents="documents" in source,
            )
        return self._loaded_model

    @asynccontextmanager
    async def generate(
        self, request: ChatRequest, partial: Partial | None = None
    ) -> AsyncIterator[ChatReply]:
        """Answer a request; entering raises whatever can be refused before the first token."""
        request.check_translated()
        dropped = dropped_parameters(request)
        request, omitted = without_changing_parts(request, self.options.omit)
        with engine_failures(started=False):
            model = self.model(await self.engine.facts())
            request, unseen = _drop_or_refuse_images(request, model.facts)
            request, seen = await self.images.read(request)
            choices = await self._prepare_generations(request, model, seen, partial)
        plan = choices[0].plan

        def usage() -> Usage:
            return _sum_usage(choices)

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

        source = choices[0].events(usage) if len(choices) == 1 else _merge_events(choices, usage)
        if plan.grammar is not None:
            source = self._verify_batches(source, choices, partial or Partial())
        # What is left of a reply that another began may be as long as the context lets it be.
        most = len(plan.prompt) + (plan.limit if partial is None else plan.room)
        async with self.reserve(request.n, most), aclosing(source) as batches:
            changes = [*dropped, *omitted, *unseen, *_list_reasoning_drops(request), *plan.changes]
            yield ChatReply(batches, model.facts.fingerprint, usage, trail, changes, cache_report)
        if asked is not None and caller is not None and choices[0].asked:
            # What the engine has computed for a request that it has answered.
            made = choices[0]
            self._conversations.answered(caller, asked, made.tokens, made.reasoning, cut=made.cut)
        if partial is None and plan.encoded.end is not None:
            for choice in choices:
                model.encoder.keep_reply(plan.encoded.end, *choice.written)

    retries = 0  # its engine is restarted by whoever supervises it

    async def count_tokens(self, request: ChatRequest) -> int:
        """Return the number of tokens of the prompt; raise whatever its rendering refuses."""
        request.check_translated()
        request, _ = without_changing_parts(request, self.options.omit)
        with engine_failures(started=False):
            model = self.model(await self.engine.facts())
            request, _ = _drop_or_refuse_images(request, model.facts)
            request, seen = await self.images.read(request)
            return await prompt_tokens(request, model, seen)

    def continues(self, request: ChatRequest, partial: Partial) -> bool:
        """Return whether the model can continue the partial reply.

        Before the model is loaded, what depends on its weights is assumed to be possible.
        """
        if request.n != 1:
            return False
        if self._loaded_model is None or knows(self._loaded_model.facts, partial.trail):
            return True
        try:
            thinking.plan(self._loaded_model.form, request.thinking)
        except InvalidRequest:
            return False
        return can_write(self._loaded_model.form, partial)

    async def _prepare_generations(
        self, request: ChatRequest, model: LoadedModel, images: Images, partial: Partial | None
    ) -> list[Generation]:
        several = partial is not None and len(partial.calls) > 1
        if several and request.parallel_tool_calls is None:
            # The target that began the reply is known to write several.
            request = structs.replace(request, parallel_tool_calls=True)
        plan = await make_plan(request, model, partial, images)
        vocabulary = Vocabulary(model.facts.vocabulary, model.facts.words)
        param = "response_format" if request.output is not None else "tools"
        for grammar in (plan.grammar, plan.answer_grammar):
            if grammar is not None:
                await self.grammars.check(grammar, vocabulary, param=param)
        if partial is not None:
            return [await resumed(request, model, plan, partial)]
        return [Generation(self.engine, request, plan, n) for n in range(request.n)]

    # What the grammar enforced has to hold at the end: an engine that gives up a grammar says so
    # only in its log. A choice that breaks a rule ends with an error; one that takes too much work
    # to check is delivered, and marked.

    async def _verify_batches(
        self, batches: AsyncGenerator[Batch, None], choices: Sequence[Generation], sent: Partial
    ) -> AsyncGenerator[Batch, None]:
        found = [
            _Choice(
                made,
                [made.plan.resumed + sent.text],
                {call.index: (call.name, [call.arguments]) for call in sent.calls},
            )
            for made in choices
        ]
        async with aclosing(batches):
            async for batch in batches:
                for at, event in enumerate(batch):
                    if isinstance(event, TextDelta | ToolCallStarted | ToolCallDelta):
                        found[event.choice].add(event)
                    elif isinstance(event, Finished):
                        try:
                            await self._raise_fault_of_choice(found[event.choice], event)
                        except (WorkExceeded, Overloaded):
                            log.warning("reply not verified", choice=event.choice)
                            unverified = structs.replace(event, verified=False)
                            batch = [*batch[:at], unverified, *batch[at + 1 :]]
                yield batch

    async def _raise_fault_of_choice(self, choice: _Choice, finished: Finished) -> None:
        # Raises if a choice has a fault, or was cut and does not follow its grammar up to there.
        made = choice.made
        whole = finished.reason in ("stop", "tool_calls") and not made.stopped
        fault = await decided(partial(choice.fault, whole=whole), choice.characters)
        if fault is None and whole:
            return
        model, (grammar, tokens, text) = self._loaded_model, made.constrained
        broken, resumed = None, made.plan.resumed
        if grammar is not None and model is not None:
            vocabulary = Vocabulary(model.facts.vocabulary, model.facts.words)
            try:
                broken = await self.grammars.fault_of(grammar, tokens, text, vocabulary, resumed)
            except Overloaded:
                if fault is None:
                    raise
        if broken == TOO_COMPLEX:
            raise given_up()
        if fault is not None or broken is not None:
            raise InternalError(f"The answer does not have the form asked for: {fault or broken}")


def _sum_usage(choices: Sequence[Generation]) -> Usage:
    if not any(choice.asked for choice in choices):
        return Usage(0, 0)
    prompt = len(choices[0].plan.prompt)
    return Usage(
        prompt=prompt,
        completion=sum(choice.completion for choice in choices),
        cached=min(choices[0].cached or 0, prompt),
        reasoning=sum(choice.reasoning for choice in choices),
        discarded=sum(choice.discarded for choice in choices),
    )


def _list_reasoning_drops(request: ChatRequest) -> Sequence[str]:
    if isinstance(request.sent, Unread):  # which has none
        return ()
    messages: Any = request.sent.get("messages", ())
    told = []
    for index, message in enumerate(messages):
        if "reasoning_details" in message and unreadable(message["reasoning_details"]):
            told.append(f"messages[{index}].reasoning_details dropped")
        if any("extra_content" in call for call in message.get("tool_calls") or ()):
            told.append(f"messages[{index}].tool_calls.extra_content dropped")
    return told


def dropped_parameters(request: ChatRequest, known: Known = KNOWN) -> Sequence[str]:
    """Return a report of the unknown fields that are dropped; raise if a strict request has any."""
    unlisted = request.unlisted
    if unlisted is None:
        return ()
    if unlisted.names and request.strict and (refused := refusal(unlisted.body, known)):
        raise refused
    return unlisted.changes


def _drop_or_refuse_images(
    request: ChatRequest, facts: ModelFacts
) -> tuple[ChatRequest, Sequence[str]]:
    changes: Sequence[str] = ()
    if not facts.vision:
        request, changes = request.without_optional_images()
    for param, image in images(request.messages):
        if not facts.vision:
            advice = facts.without_vision
            more = f" An operator can change that: {advice}." if advice else ""
            raise InvalidRequest(
                f"This model takes no images; send text parts only.{more}",
                code="unsupported_parameter",
                param=param,
            )
        if not image.enclosed:
            raise not_fetched(f"{param}.image_url.url")
    return request, changes


async def _merge_events(
    choices: Sequence[Generation], count_usage: Callable[[], Usage]
) -> AsyncGenerator[Batch, None]:
    queue: asyncio.Queue[Batch | None] = asyncio.Queue(maxsize=64)

    async def run(choice: Generation) -> None:
        async with aclosing(choice.events()) as batches:
            async for batch in batches:
                await queue.put(batch)
        await queue.put(None)

    try:
        async with asyncio.TaskGroup() as group:
            for choice in choices:
                group.create_task(run(choice))
            for _ in choices:  # each of which ends with `None`
                while (batch := await queue.get()) is not None:
                    yield batch
    except BaseExceptionGroup as failures:
        first = failures.exceptions[0]
        raise first from first.__cause__
    yield [count_usage()]


@dataclass(slots=True)
class _Choice:
    """A choice with the text and the calls that the client has been given of it."""

    made: Generation
    text: list[str]
    calls: dict[int, tuple[str, list[str]]]

    def add(self, event: Event) -> None:
        match event:
            case TextDelta(text):
                self.text.append(text)
            case ToolCallStarted(index, _, name):
                self.calls[index] = name, []
            case ToolCallDelta(index, arguments):
                self.calls[index][1].append(arguments)

    @property
    def characters(self) -> int:
        arguments = (piece for _, pieces in self.calls.values() for piece in pieces)
        return sum(map(len, self.text)) + sum(map(len, arguments))

    def fault(self, work: Work, *, whole: bool) -> str | None:
        request, plan, said = self.made.request, self.made.plan, "".join(self.text)
        required = request.tool_choice.mode == "required"
        if self.made.stopped:
            return self._find_call_fault(work, whole=False)
        if required and (said.strip() or (whole and not self.calls)):
            return "A call was required, and there is text in its place."
        if self.calls or plan.answer is None or not whole:
            return self._find_call_fault(work, whole=whole)
        return plan.answer.fault(said, work)

    def _find_call_fault(self, work: Work, *, whole: bool) -> str | None:
        calls = [(name, "".join(pieces)) for name, pieces in self.calls.values()]
        if calls and not whole and not is_object(calls[-1][1]):
            calls.pop()
        for name, arguments in calls:
            schema = self.made.plan.functions.arguments.get(name)
            if schema is None:
                return f"It calls {name[:64]!r}, which may not be called."
            fault = schema.fault_of_text(arguments, work)
            if fault is not None:
                return f"The arguments of {name!r}: {fault}"
        return None
