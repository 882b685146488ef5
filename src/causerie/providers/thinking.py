"""Writes a request's settings of thinking in the fields that each kind of server knows.

What several fields said is one :class:`~causerie.protocol.request.Thinking`. The service itself
hides the reasoning: a reply that breaks could not be continued without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from causerie.protocol.parameters import USUAL_EFFORT, ThinkingParameters, effort_within
from causerie.providers.dialect import Switch
from causerie.providers.request_body import RequestDraft

PARAMETERS = frozenset(ThinkingParameters.__struct_fields__)
_SWITCHES = ("enable_thinking", "thinking")
_KWARGS = "chat_template_kwargs"
_NAME = "model:thinking"
# Arguments of the function that renders templates, as the common library of them has it.
_OF_THE_RENDERER = frozenset({
    "add_generation_prompt", "add_special_tokens", "chat_template", "continue_final_message",
    "conversation", "documents", "load_audio_from_video", "max_length", "messages",
    "padding", "processor_kwargs", "return_assistant_tokens_mask", "return_dict",
    "return_tensors", "tokenize", "tokenizer", "tokenizer_kwargs", "tools", "truncation",
})  # fmt: skip
_LEAST_BUDGET = 1024  # tokens, of the Messages API
_GRADED = 3  # words of effort that a server needs for a budget to be said in them


def write_thinking(draft: RequestDraft) -> None:
    switch = draft.dialect.thinking.switch
    if switch not in ("as_sent", "template"):
        _refuse_unrelated_template_arguments(draft)
    _WRITERS[switch](draft)
    if switch != "object" and (draft.document.get("reasoning") or {}).get("summary"):
        draft.dropped("reasoning.summary")


def _copy_or_translate_thinking_fields(draft: RequestDraft) -> None:
    for name in ("reasoning_effort", "thinking_token_budget"):
        if draft.given(name):
            draft.fields[name] = draft.document[name]
    _copy_non_renderer_template_arguments(draft)
    if not draft.given("reasoning"):
        if _is_thinking_enabled_by_model_name(draft):
            _write_template_switch(draft, _NAME)
        return
    thinking = draft.request.thinking
    _write_template_switch(draft, "reasoning")
    if thinking.effort is not None and "reasoning_effort" not in draft.fields:
        draft.fields["reasoning_effort"] = thinking.effort
        draft.moved("reasoning.effort", "reasoning_effort")
    if thinking.budget is not None and "thinking_token_budget" not in draft.fields:
        draft.fields["thinking_token_budget"] = thinking.budget
        draft.moved("reasoning.max_tokens", "thinking_token_budget")


def _write_thinking_to_template(draft: RequestDraft) -> None:
    control, thinking = draft.dialect.thinking, draft.request.thinking
    _copy_non_renderer_template_arguments(draft)
    said = _sent_field(draft, "reasoning", "reasoning_effort", "thinking_token_budget")
    if said or _is_thinking_enabled_by_model_name(draft):
        _write_template_switch(draft, said or _NAME)
    if thinking.effort is not None:
        write = _write_template_effort if control.effort_in_template else _write_reasoning_effort
        write(draft, thinking.effort)
    _write_thinking_budget(draft)


def _write_thinking_as_effort(draft: RequestDraft) -> None:
    thinking = draft.request.thinking
    if thinking.enabled is False:
        _write_reasoning_effort(draft, "none")
    else:
        _write_budget_and_effort(draft, USUAL_EFFORT if thinking.enabled else None)


def _write_thinking_type_and_effort(draft: RequestDraft) -> None:
    enabled = draft.request.thinking.enabled
    if enabled is not None:
        draft.fields["thinking"] = {"type": "enabled" if enabled else "disabled"}
        draft.moved(_find_switch_source(draft), "thinking.type")
    _write_budget_and_effort(draft)


def _write_reasoning_object(draft: RequestDraft) -> None:
    thinking, control = draft.request.thinking, draft.dialect.thinking
    reasoning = dict(draft.document.get("reasoning") or {})
    reasoning.pop("exclude", None)
    if thinking.effort is not None and thinking.budget is not None:
        raise draft.unsupported(
            "thinking_token_budget", "It takes an effort or a budget; send one of them."
        )
    if thinking.budget is not None:
        reasoning["max_tokens"] = thinking.budget
    elif thinking.enabled is False:
        reasoning = {"effort": control.efforts["none"]}
    elif thinking.effort is not None:
        reasoning["effort"] = control.efforts[thinking.effort]
    elif thinking.enabled:
        reasoning["enabled"] = True
    if not reasoning:
        return
    draft.fields["reasoning"] = reasoning
    for name in ("reasoning_effort", "thinking_token_budget"):
        if draft.given(name):
            draft.moved(name, "reasoning")
    if draft.given(_KWARGS):
        draft.moved(f"{_KWARGS}.enable_thinking", "reasoning")


def _write_messages_api_thinking(draft: RequestDraft) -> None:
    # A budget is manual thinking; with an effort the model chooses the length. The summary is
    # requested because some models send no text of their reasoning otherwise.
    thinking = draft.request.thinking
    if thinking.enabled is False:
        draft.fields["thinking"] = {"type": "disabled"}
        draft.moved(_find_switch_source(draft), "thinking.type")
        return
    if thinking.budget:
        budget = max(thinking.budget, _LEAST_BUDGET)
        manual = {"type": "enabled", "budget_tokens": budget, "display": "summarized"}
        draft.fields["thinking"] = manual
        draft.moved(_budget_field_or_empty(draft), "thinking")
        if budget != thinking.budget:
            draft.changes.append(f"thinking.budget_tokens {thinking.budget}->{budget}")
    elif thinking.enabled or thinking.adaptive or thinking.effort is not None:
        draft.fields["thinking"] = {"type": "adaptive", "display": "summarized"}
        draft.moved(_find_switch_source(draft), "thinking.type")
    if thinking.effort is not None:
        word = draft.dialect.thinking.efforts[thinking.effort]
        draft.fields["output_config"] = {"effort": word}
        draft.moved(_sent_field(draft, "reasoning_effort", "reasoning"), "output_config.effort")
        if word != thinking.effort:
            draft.changes.append(f"output_config.effort {thinking.effort}->{word}")


_WRITERS: Mapping[Switch, Callable[[RequestDraft], None]] = {
    "as_sent": _copy_or_translate_thinking_fields,
    "template": _write_thinking_to_template,
    "effort": _write_thinking_as_effort,
    "typed": _write_thinking_type_and_effort,
    "object": _write_reasoning_object,
    "adaptive": _write_messages_api_thinking,
}


def _copy_non_renderer_template_arguments(draft: RequestDraft) -> None:
    # The renderer's own arguments would let a client run its own template.
    sent = draft.document.get(_KWARGS)
    if sent is None:
        return
    kept = {name: value for name, value in sent.items() if name not in _OF_THE_RENDERER}
    draft.fields[_KWARGS] = sent if len(kept) == len(sent) else kept
    for name in sent.keys() - kept.keys():
        draft.dropped(f"{_KWARGS}.{name}")


def _write_template_switch(draft: RequestDraft, source_field: str) -> None:
    # Templates know one of the two names and ignore the other.
    enabled = draft.request.thinking.enabled
    kwargs = draft.fields.get(_KWARGS) or {}
    if enabled is None or _has_thinking_switch(kwargs):
        return
    draft.fields[_KWARGS] = {**kwargs, **dict.fromkeys(_SWITCHES, enabled)}
    draft.moved(source_field, f"{_KWARGS}.enable_thinking")


def _write_template_effort(draft: RequestDraft, effort: str) -> None:
    kwargs = draft.fields.get(_KWARGS) or {}
    if "reasoning_effort" not in kwargs:
        word = draft.dialect.thinking.efforts[effort]
        draft.fields[_KWARGS] = {**kwargs, "reasoning_effort": word}
        sent = _sent_field(draft, "reasoning_effort", "reasoning")
        draft.moved(sent, f"{_KWARGS}.reasoning_effort")


def _write_reasoning_effort(draft: RequestDraft, effort: str) -> None:
    word = draft.dialect.thinking.efforts.get(effort)
    if word is None:
        raise draft.unsupported("reasoning_effort")
    draft.fields["reasoning_effort"] = word
    sent = draft.document.get("reasoning_effort")
    if sent is None:
        draft.moved(_find_switch_source(draft), "reasoning_effort")
        if word != effort and draft.request.thinking.effort is not None:
            draft.changes.append(f"reasoning.effort {effort}->{word}")
    elif sent != word:
        draft.changes.append(f"reasoning_effort {sent}->{word}")


def _write_thinking_budget(draft: RequestDraft) -> None:
    budget, name = draft.request.thinking.budget, draft.dialect.thinking.budget
    if not budget:
        return
    said = _budget_field_or_empty(draft)
    if name is None:
        raise draft.unsupported(said, "Use `reasoning_effort`.")
    draft.fields[name] = budget
    if said != name:
        draft.moved(said, name)


def _write_budget_and_effort(draft: RequestDraft, default_effort: str | None = None) -> None:
    if not _try_write_budget_as_effort(draft):
        _write_thinking_budget(draft)
        if effort := draft.request.thinking.effort or default_effort:
            _write_reasoning_effort(draft, effort)


def _try_write_budget_as_effort(draft: RequestDraft) -> bool:
    # As the well-known router does. A client that sends `thinking_token_budget` relies on it.
    thinking, control = draft.request.thinking, draft.dialect.thinking
    graded = len(set(control.efforts.values()) - {"none"}) >= _GRADED
    if not thinking.budget or thinking.effort is not None or control.budget is not None:
        return False
    if not graded or draft.given("thinking_token_budget"):
        return False
    word = control.efforts[effort_within(thinking.budget, draft.request.max_tokens)]
    draft.fields["reasoning_effort"] = word
    draft.changes.append(f"reasoning.max_tokens->reasoning_effort {word}")
    return True


def _refuse_unrelated_template_arguments(draft: RequestDraft) -> None:
    for name, value in (draft.document.get(_KWARGS) or {}).items():
        means = (name in _SWITCHES and isinstance(value, bool)) or (
            name == "reasoning_effort" and value == draft.request.thinking.effort
        )
        if not means and value is not None and not (name == "reasoning_effort" and value == "none"):
            raise draft.unsupported(f"{_KWARGS}.{name[:64]}")


def _has_thinking_switch(template_arguments: Mapping[str, object]) -> bool:
    return any(isinstance(template_arguments.get(name), bool) for name in _SWITCHES)


def _sent_field(draft: RequestDraft, *names: str) -> str:
    return next((name for name in names if draft.given(name)), "")


def _budget_field_or_empty(draft: RequestDraft) -> str:
    said = _sent_field(draft, "thinking_token_budget", "reasoning")
    return "reasoning.max_tokens" if said == "reasoning" else said


def _find_switch_source(draft: RequestDraft) -> str:
    said = _sent_field(draft, "reasoning", "reasoning_effort", "thinking_token_budget", _KWARGS)
    return f"{_KWARGS}.enable_thinking" if said == _KWARGS else said or _NAME


def _is_thinking_enabled_by_model_name(draft: RequestDraft) -> bool:
    kwargs = draft.document.get(_KWARGS) or {}
    given = _sent_field(draft, "reasoning", "reasoning_effort") or kwargs.get("reasoning_effort")
    return draft.request.thinking.enabled is True and not _has_thinking_switch(kwargs) and not given
