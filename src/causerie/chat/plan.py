"""Decides everything about a request on one text engine before the first token.

Everything that can be refused is refused here: by the template, the context's length, or a schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from msgspec import Struct, structs

from causerie.chat import thinking
from causerie.chat.answer import AnswerPlan, Functions, SchemaCache, answer_plan, callable_functions
from causerie.chat.call_syntax.base import text_overlap
from causerie.chat.constraint import CallPlan, calls_in_reasoning, compose, leaves_free
from causerie.chat.encoding import EncodedText, PromptEncoder
from causerie.chat.formats.format import ModelFormat
from causerie.chat.grammar_text import Manner
from causerie.chat.images import split_at_marks
from causerie.chat.parser import ReasoningEnd
from causerie.chat.prompt import Prompt
from causerie.chat.rendering import Renderer
from causerie.chat.resumed_reply import answer_space, call_space
from causerie.chat.template import Rendered
from causerie.chat.thinking import ThinkingPlan, request_sampling
from causerie.engines.base import Image, ImageRefused, ModelFacts, PromptTooLong, TextEngine
from causerie.errors import ContextLengthExceeded, InvalidRequest
from causerie.http.event_loop import offload
from causerie.protocol.events import Partial
from causerie.protocol.parameters import ModelSampling, SamplingDefaults, SamplingParams
from causerie.protocol.request import ChatRequest, JsonObject, JsonSchema

Images = Mapping[str, Image]  # by the marks that stand for them in messages

_HEAD = 40  # characters of a message by which it is found in the prompt


@dataclass(frozen=True, slots=True)
class Plan:
    form: ModelFormat
    rendered: Rendered
    prompt: tuple[int, ...]
    encoded: EncodedText  # the same, and how it was made
    limit: int  # output limit, in tokens
    room: int  # rest of the context after the prompt, in tokens
    budget: int  # limit on reasoning, in tokens
    reasoning_open: bool
    reasoning_end: ReasoningEnd
    leading: str  # white space that the model still writes before its reasoning or its answer
    functions: Functions
    unmarked_calls: bool  # an answer of nothing but calls without their marker is read as these
    grammar: str | None  # applies from the first token
    resumed: str  # of the answer: what a message that is continued has of it, and the grammar takes
    answer_grammar: str | None
    sampling: SamplingParams
    visible: tuple[str, ...]
    end_tokens: tuple[int, ...]
    answer: AnswerPlan | None
    changes: tuple[str, ...]
    """A lowered limit and annotations that are ignored, as a response header names them."""

    @property
    def watched(self) -> bool:
        return self.functions.watched or (self.answer is not None and self.answer.watched)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model as chat sees it: its engine and facts, its format and who renders its prompts."""

    engine: TextEngine
    facts: ModelFacts
    form: ModelFormat
    renderer: Renderer
    encoder: PromptEncoder
    max_output_tokens: int | None = None
    sampling: ModelSampling = SamplingDefaults()  # noqa: RUF009 - frozen
    shows_documents: bool = True
    schema_cache: SchemaCache = field(default_factory=SchemaCache)


class _WrittenPrompt(NamedTuple):
    told: Prompt
    rendered: Rendered
    encoded: EncodedText
    state: str  # of reasoning, at its end
    form: ModelFormat  # with what the model still writes before a call
    space: str  # that the model still writes before its reasoning or its answer


async def make_plan(
    request: ChatRequest, model: LoadedModel, interrupted: Partial | None, images: Images
) -> Plan:
    """Return the plan of a request; raise ``InvalidRequest`` for what the model cannot do.

    ``interrupted`` is a reply that is continued: the rest may have white space as it has.
    ``images`` are those of the marks in the messages.
    """
    _check_token_ids(request, model.facts.size)
    resumed = _extract_continued_text_for_grammar(request)
    thought = thinking.plan(model.form, request.thinking)
    functions = await _select_functions(request, model)
    written = await _render_and_encode_prompt(request, model, thought, images)
    told, rendered, encoded, state, form, space = written
    limit = _choose_output_limit(request, len(encoded.ids), model)
    calls = _plan_calls(request, functions, told, form)
    before = interrupted or Partial(text=resumed)
    answer = await _plan_answer(request, model, before.text)
    as_spelled = functions.spell or (answer is not None and answer.spell)
    manner = Manner(model.facts.end_tokens, call_space(before), as_spelled)
    first = manner if state == "open" else structs.replace(manner, leading=space)
    composed = partial(_compose_grammar, model, form, calls=calls, answer=answer)
    grammar = await composed(state, manner=first)
    _check_ending_options(request, grammar)
    lowered = (f"max_tokens lowered to {limit}",) if limit < (request.max_tokens or 0) else ()
    return Plan(
        form=form,
        rendered=rendered,
        prompt=tuple(encoded.ids),
        encoded=encoded,
        limit=limit,
        room=_choose_context_length(request, model) - len(encoded.ids),
        budget=thinking.budget(request.thinking, limit),
        reasoning_open=state == "open",
        reasoning_end=_choose_markers_ending_reasoning(model, form, calls, answer),
        leading=space,
        functions=functions,
        unmarked_calls=calls.unmarked,
        grammar=grammar,
        resumed=resumed,
        answer_grammar=await composed("none", manner=manner),
        sampling=request_sampling(
            request.sampling, model.sampling, model.facts.sampling, thinks=thought.on is not False
        ),
        visible=_select_visible_tokens(form, model.facts.control_tokens),
        end_tokens=model.facts.end_tokens,
        answer=answer,
        changes=(*lowered, *functions.ignored, *(answer.ignored if answer else ())),
    )


async def _render_and_encode_prompt(
    request: ChatRequest, model: LoadedModel, thinking_plan: ThinkingPlan, images: Images
) -> _WrittenPrompt:
    # What changes from turn to turn without changing what the model reads (`tool_choice`,
    # `response_format`) leaves the prompt alone.
    told = await model.renderer.prompt(request)
    rendered, marks = told.rendered, model.form.reasoning
    continued = request.continue_final_message
    space = told.leading if request.add_generation_prompt and not continued else ""
    if thinking_plan.written and not continued:
        opened = rendered.text + space + marks.open + marks.after_open
        rendered, space = Rendered(opened, rendered.user), ""
    encoded = await _encode_prompt(rendered, request, model, images)
    form = model.form
    state = reasoning_state(rendered, form, thinking_plan, continued)
    if state == "open":
        begun = continued or rendered.text.endswith(marks.after_open)
        space = "" if begun else marks.after_open
    else:
        form = _limit_call_lead_to_unwritten(form, told.leading_call, rendered, space)
    return _WrittenPrompt(told, rendered, encoded, state, form, space)


async def prompt_tokens(request: ChatRequest, model: LoadedModel, images: Images) -> int:
    """Return how many tokens the planned prompt would have; raise like :func:`make_plan`."""
    thought = thinking.plan(model.form, request.thinking)
    return len((await _render_and_encode_prompt(request, model, thought, images)).encoded.ids)


def _choose_markers_ending_reasoning(
    model: LoadedModel, form: ModelFormat, calls: CallPlan, answer: AnswerPlan | None
) -> ReasoningEnd:
    if leaves_free(form, calls if calls.tools else None, answer):
        return ReasoningEnd.ANY_MARKER
    within = calls_in_reasoning(form, model.facts.control_tokens, calls)
    return ReasoningEnd.OWN_OR_CALL if within else ReasoningEnd.OWN_MARKER


def _extract_continued_text_for_grammar(request: ChatRequest) -> str:
    if not request.continue_final_message or request.tool_choice.mode == "required":
        return ""
    text = request.messages[-1].text
    match request.output:
        case None:
            return ""
        case JsonObject() | JsonSchema():
            return text.lstrip()  # which is no part of JSON, nor of its grammar
        case _:
            return text


async def _select_functions(request: ChatRequest, model: LoadedModel) -> Functions:
    marks, calls = model.facts.control_tokens, model.form.calls
    functions = await callable_functions(request, marks, model.schema_cache)
    # A grammar is held where the model writes arguments as JSON.
    ways = (calls, *calls.also)
    if not functions.grammars or all(way.writes_json for way in ways):
        return functions
    places = (at for at, tool in enumerate(request.tools) if tool.name in functions.grammars)
    loose = (f"tools[{at}].function.format not enforced" for at in places)
    return structs.replace(functions, grammars={}, ignored=(*functions.ignored, *loose))


def _plan_calls(
    request: ChatRequest, functions: Functions, prompt: Prompt, form: ModelFormat
) -> CallPlan:
    choice = request.tool_choice
    required = choice.mode == "required"
    named = required and choice.allowed is not None and len(choice.allowed) == 1
    asked = request.parallel_tool_calls
    # Where a call is forced, the model has not chosen to call. Then many write call after call,
    # unless their families close a section of calls with a marker of its own.
    usual = prompt.several_calls and (bool(form.calls.end) or not required)
    several = usual if asked is None else asked
    parallel = several and not named
    free = not (required or request.output or request.continue_final_message)
    # A constraint that would end the reply before `min_tokens`, or against `ignore_eos`, is left
    # out: a call is text then.
    endless = request.min_tokens or request.ignore_eos
    forbidden = bool(request.tools) and choice.mode == "none" and not endless
    return CallPlan(
        functions.tools, required, parallel, free, functions.text, forbidden, functions.grammars
    )


async def _plan_answer(request: ChatRequest, model: LoadedModel, prefix: str) -> AnswerPlan | None:
    if request.output is None:
        return None
    marks, space = model.facts.control_tokens, answer_space(prefix)
    return await answer_plan(request.output, marks, model.schema_cache, white_space=space)


async def _compose_grammar(
    model: LoadedModel,
    form: ModelFormat,
    reasoning_state: str,
    *,
    calls: CallPlan,
    answer: AnswerPlan | None,
    manner: Manner,
) -> str | None:
    form = structs.replace(form, thinking=None)  # on which no grammar depends
    make = partial(
        compose,
        form,
        model.facts.control_tokens,
        reasoning=reasoning_state,
        calls=calls if calls.tools or calls.forbidden else None,
        answer=answer,
        manner=manner,
    )
    text = calls.text + (answer.rules if answer else "")
    if not text:
        return make()
    how = (form, reasoning_state, calls.required, calls.parallel, calls.unmarked, answer, manner)
    return await model.schema_cache.of(text, how, make)


def _check_token_ids(request: ChatRequest, vocab_size: int | None) -> None:
    # An engine ignores ids of another vocabulary, and nobody would know.
    given = {"logit_bias": request.sampling.logit_bias, "stop_token_ids": request.stop_token_ids}
    for name, ids in given.items():
        highest = max(ids, default=0)
        if vocab_size is not None and highest >= vocab_size:
            raise InvalidRequest(
                f"`{name}` has the token id {highest}, but this model has {vocab_size} tokens, "
                "counted from 0; send ids of its own tokenizer.",
                param=name,
            )


def _check_ending_options(request: ChatRequest, grammar: str | None) -> None:
    if grammar is None:
        return
    for name, given in (("min_tokens", request.min_tokens), ("ignore_eos", request.ignore_eos)):
        if given:
            raise InvalidRequest(
                f"`{name}` cannot be kept together with tools, `response_format` or "
                "`structured_outputs`: the reply ends where its form does. Leave one of them out.",
                code="unsupported_parameter",
                param=name,
            )


def reasoning_state(
    rendered: Rendered, form: ModelFormat, thought: ThinkingPlan, continued: bool
) -> str:
    """Return whether reasoning is ``open`` at the prompt's end, ``possible`` there, or ``none``."""
    # A prompt whose last message is continued ends in the text of that message.
    spans, end = rendered.user, len(rendered.text)
    if continued and spans and spans[-1][1] == end:
        end, spans = spans[-1][0], spans[:-1]
    tail = rendered.text[spans[-1][1] if spans else 0 : end]
    opened = max(map(tail.rfind, form.reasoning.opens))
    if opened > max(map(tail.rfind, form.reasoning.closes)):
        return "open"
    return "possible" if form.thinking is not None and thought.on is not False else "none"


def _limit_call_lead_to_unwritten(
    form: ModelFormat, space_before_call: str | None, rendered: Rendered, leading_space: str
) -> ModelFormat:
    lead = form.calls.lead
    blanks = None if lead.strip() else space_before_call
    written = text_overlap(rendered.text, lead)
    lead = lead[written:] if blanks is None else blanks.removeprefix(leading_space)
    return structs.replace(form, calls=structs.replace(form.calls, lead=lead))


async def _encode_prompt(
    rendered: Rendered, request: ChatRequest, model: LoadedModel, images: Images
) -> EncodedText:
    try:
        if images:
            parts = await offload(_split_at_images, rendered, images)
            return await model.encoder.encode_pictured(parts, model.engine)
        first = next((one.text for one in request.messages if one.role != "system"), "")
        head = first.strip()[:_HEAD]
        text = rendered.text
        spans = rendered.user if head else ()
        begun = (start for start, stop in spans if text[start:stop].lstrip().startswith(head))
        parting = next(begun, 0)
        most, scope = _choose_context_length(request, model), request.cache_scope
        return await model.encoder.encode(rendered, model.engine, most, parting, scope)
    except PromptTooLong as long:
        raise ContextLengthExceeded(
            prompt_tokens=long.tokens,
            max_tokens=request.max_tokens,
            context_length=_choose_context_length(request, model),
            at_least=True,
        ) from None
    except ImageRefused:
        raise InvalidRequest(
            "The engine cannot read an image of the messages, or not so large a one.",
            param="messages",
        ) from None


def _split_at_images(rendered: Rendered, images: Images) -> list[Rendered | Image]:
    found: list[Rendered | Image] = []
    start = 0
    for part in split_at_marks(rendered.text):
        image, stop = images.get(part), start + len(part)
        found.append(rendered.upto(stop).since(start) if image is None else image)
        start = stop
    if len({one.digest for one in found if isinstance(one, Image)}) < len(images):
        raise InvalidRequest(
            "The model's chat template does not show the messages of all images; leave these out.",
            param="messages",
        )
    return found


def _choose_output_limit(request: ChatRequest, prompt_length: int, model: LoadedModel) -> int:
    context = _choose_context_length(request, model)
    room = context - prompt_length
    asked = request.max_tokens
    too_long = asked is not None and asked > room
    if room < 1 or (too_long and request.keeps_output_limit):
        raise ContextLengthExceeded(
            prompt_tokens=prompt_length, max_tokens=asked, context_length=context
        )
    if too_long:
        asked = room
    if request.min_tokens > (asked or room):
        raise InvalidRequest(
            f"`min_tokens` is {request.min_tokens}, but at most {asked or room} tokens fit.",
            param="min_tokens",
        )
    most = request.bounds.max_output_tokens
    return asked or min(room, model.max_output_tokens or room, most or room)


def _choose_context_length(request: ChatRequest, model: LoadedModel) -> int:
    context = model.facts.context_length
    return min(context, request.bounds.context_length or context)


def _select_visible_tokens(form: ModelFormat, control_tokens: Iterable[str]) -> tuple[str, ...]:
    marks = (form.answer_open, form.answer_close, form.skip)
    whole = "\0".join(_iter_format_part_strings((*marks, form.header, form.reasoning, form.calls)))
    return tuple(token for token in control_tokens if token and token in whole)


def _iter_format_part_strings(format_part: object) -> Iterator[str]:
    if isinstance(format_part, str):
        yield format_part
    elif isinstance(format_part, tuple | Struct):
        for each in format_part if isinstance(format_part, tuple) else structs.astuple(format_part):
            yield from _iter_format_part_strings(each)
