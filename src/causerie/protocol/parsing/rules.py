"""What a door accepts, and the names of all parameters by what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from causerie.protocol import bounded_json


class ParsingRules(Struct, frozen=True):
    """How a body is read.

    ``reasoning_object`` says whether the door knows the router's ``reasoning``
    object, ``router`` whether it knows ``models``, ``provider`` and the like;
    ``reject_unknown`` refuses fields that are not known to who answers; ``work``
    bounds the work of decoding a body.
    """

    reasoning_object: bool = False
    router: bool = False
    reject_unknown: bool = False
    max_messages: int = 4096
    work: bounded_json.Bounds = bounded_json.DEFAULT


HINTS = frozenset(
    {
        "user",
        "metadata",
        "store",
        "service_tier",
        "prompt_cache_key",
        "prediction",
        "verbosity",
        "safety_identifier",
    }
)
"""Taken and dropped: nothing in the answer depends on them."""

HONOURED = frozenset(
    {
        "model",
        "messages",
        "stream",
        "stream_options",
        "max_tokens",
        "max_completion_tokens",
        "min_tokens",
        "n",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "repetition_penalty",
        "frequency_penalty",
        "presence_penalty",
        "seed",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "stop",
        "stop_token_ids",
        "ignore_eos",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "response_format",
        "structured_outputs",
        "reasoning_effort",
        "reasoning",
        "include_reasoning",
        "thinking_token_budget",
        "chat_template_kwargs",
        "documents",
        "continue_final_message",
        "add_generation_prompt",
        "session_id",
        "modalities",
    }
)
"""Read, checked, and kept."""

REFUSED: Mapping[str, str] = {
    "functions": "Define functions in `tools`.",
    "function_call": "Use `tool_choice`.",
    "audio": "Replies are text; leave it out.",
    "web_search_options": "Searching is not offered; define a function in `tools`.",
    "best_of": "Use `n`.",
    "use_beam_search": "Tokens are drawn one by one; leave it out.",
    "length_penalty": "It belongs to beam search, which is not offered.",
    "echo": "The prompt is never part of the reply; leave it out.",
    "prompt_logprobs": "Log-probabilities are given for the reply only, by `logprobs`.",
    "bad_words": "Use `logit_bias` with the ids of their tokens.",
    "allowed_token_ids": "Use `logit_bias`, or `structured_outputs`.",
    "truncate_prompt_tokens": "Prompts are never cut; shorten the messages.",
    "chat_template": "The model's own template is used; leave it out.",
    "guided_json": "Use `structured_outputs.json`.",
    "guided_regex": "Use `structured_outputs.regex`.",
    "guided_choice": "Use `structured_outputs.choice`.",
    "guided_grammar": "Use `structured_outputs.grammar`.",
    "grammar": "Use `structured_outputs.grammar`.",
    "json_schema": "Use `response_format` of type `json_schema`.",
    "regex": "Use `structured_outputs.regex`.",
    "ebnf": "Use `structured_outputs.grammar`.",
    "format": "Use `response_format`.",
}
"""Known elsewhere, relied on where they are given, and not offered: what to do instead."""
