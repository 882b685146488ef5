"""Prompts that do not fit, in the words of many servers, and words that only sound so."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from casekit import each_of
from hypothesis import given
from hypothesis import strategies as st

from causerie.errors import ContextLengthExceeded, ErrorClass, InvalidRequest, ServiceError
from causerie.providers.dialects import GENERIC
from causerie.providers.overflow import WORDINGS, Overflow, overflow
from causerie.providers.refusal import failure_in_reply, refusal

SAID = (
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "The input token count exceeds the maximum number of tokens allowed 1048576.",
    "Unable to submit request because the input token count is 1200000 but model only supports up "
    "to 1048576. Reduce the input token count and try again.",
    "Range of input length should be [1, 129024]",
    "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 983616]",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Please reduce the length of the messages or completion.",
    "Please reduce the length of the messages or completion. Current length is 42328 while limit "
    "is 40000",
    "Your request exceeded model token limit: 262144",
    "Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)",
    "Prompt exceeds max length",
    "Prompt 超长",
    "tokens in request more than max tokens allowed",
    "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292. Try "
    "using a shorter prompt",
    "too many tokens: size limit exceeded by 168512 tokens. The limit for this model is 132000 "
    "tokens.",
    "prompt token count of 391491 exceeds the limit of 128000",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 "
    "`inputs` tokens and 500 `max_new_tokens`",
    "Input validation error: `inputs` must have less than 99999 tokens. Given: 100500",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178 "
    "tokens. Please reduce the length of the messages.",
    "prompt is too long: 213462 tokens > 200000 maximum",
    "Prompt is too long",
    "input length and `max_tokens` exceed context limit: 199759 + 21333 > 200000, decrease input "
    "length or `max_tokens` and try again",
    "Input is too long for requested model.",
    "Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input "
    "to try again.",
    "The prompt is too long: 262377, model maximum context length: 262143",
    "Requested token count exceeds the model's maximum context length of 163840 tokens.",
    "Total tokens of image and text exceed max message tokens.",
    "invalid params, context window exceeds limit (2013)",
    "the input length exceeds the context length",
    "prompt too long; exceeded max context length by 4 tokens",
    "error_code: 336103, error_msg: Prompt tokens too long",
    "超出了模型最大token限制。",
    "输入长度超过模型上限",
    "The total length of all messages is too long.",
    "the request exceeds the available context size, try increasing it",
    "the prompt is longer than the context length currently available to the model; shorten the "
    "prompt, adjust the context length in settings",
    "The number of tokens to keep from the initial prompt is greater than the context length "
    "(n_keep: 5000 >= n_ctx: 4096). Try to load the model with a larger context length",
    "litellm.ContextWindowExceededError: Context Window exceeded for given call. No models have "
    "context window large enough for this call.",
    "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context "
    "length is 32768 tokens and your request has 1000 input tokens (32000 > 32768 - 1000).",
    "The decoder prompt (length 5951) is longer than the maximum model length of 4096. Make sure "
    "that `max_model_len` is no smaller than the number of text tokens.",
    "This model's maximum context length is 100000 tokens. However, you requested 32000 output "
    "tokens and your prompt contains 99999999 characters (more than 12345678 characters)",
    "Token limit exceeded, please try again later.",
    "The conversation is too long for this model",
)

OTHER_ERRORS = (
    "max_tokens=200000 cannot be greater than max_model_len=100000. Please request fewer output "
    "tokens.",
    "max_tokens is too large: 200000. This model supports at most 16384 completion tokens, whereas "
    "you provided 200000.",
    "Range of max_tokens should be [1, 8192]",
    "too many tokens: max tokens must be less than or equal to 4096, the maximum output length for "
    "this model - received 1000000.",
    "max_tokens: 200000 > 64000, which is the maximum allowed number of output tokens",
    "max_tokens exceeds the limit of 8192",
    "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6291456 bytes > 5242880 "
    "bytes",
    "The image is too large: at most 2048x2048 pixels",
    "Invalid 'user': string too long. Expected a string with maximum length 64, but got a string "
    "with length 123 instead.",
    "Invalid 'stop': array too long. Expected an array with maximum length 4.",
    "Request too large for gpt-4o in organization on tokens per min (TPM): Limit 30000, Requested "
    "41000. The input or output tokens must be reduced in order to run successfully.",
    "ThrottlingException: Too many tokens, please wait before trying again.",
    "Rate limit exceeded",
    "function name is too long, at most 64 characters",
    "thinking.budget_tokens must be less than max_tokens",
    "The document is longer than 100 pages",
    "You exceeded your current quota, please check your plan and billing details.",
    "The response_format schema exceeds the maximum nesting depth",
    "The parameter max_tokens is larger than the model's maximum output tokens",
)


def refused(error: object, status: int = 400) -> ServiceError:
    return refusal(status, {}, json.dumps({"error": error}).encode(), GENERIC)


@each_of("words", SAID)
@each_of("status", [400, 413, 422, 500])
def test_words_of_servers(words: str, status: int) -> None:
    failure = refused({"message": words}, status)
    assert (failure.status, failure.code) == (400, "context_length_exceeded")
    assert failure.error_class is ErrorClass.CONTEXT_LENGTH
    assert failure.metadata["upstream_status"] == status
    assert failure.param == "messages"


@each_of("words", SAID)
def test_words_behind_a_router_and_within_a_stream(words: str) -> None:
    behind = {"message": "Provider returned error", "code": 400, "metadata": {"raw": words}}
    assert refused(behind).code == "context_length_exceeded"
    assert failure_in_reply({"message": words}, started=False).code == "context_length_exceeded"


@each_of("words", OTHER_ERRORS)
def test_other_errors_are_no_overflow(words: str) -> None:
    assert overflow({"message": words}) is None


def test_words_in_a_list_of_errors() -> None:
    words = "The estimated number of input tokens (30000) exceeded this model context window limit."
    body = {"success": False, "result": None, "errors": [{"code": 5021, "message": words}]}
    error = refusal(400, {}, json.dumps(body).encode(), GENERIC)
    assert error.code == "context_length_exceeded"


@pytest.mark.parametrize(
    "code",
    ["context_length_exceeded", "exceed_context_size_error", "model_max_prompt_tokens_exceeded"],
)
def test_codes_without_words(code: str) -> None:
    for error in ({"code": code, "message": "No."}, {"type": code}):
        assert refused(error).code == "context_length_exceeded"


def test_too_large_without_a_word() -> None:
    for body in (b"", b"<html><head><title>413</title></head></html>"):
        assert refusal(413, {}, body, GENERIC).code == "context_length_exceeded"
    assert refused({"message": "The image is too large"}, 413).code == "invalid_value"


def test_numbers_beside_the_words() -> None:
    error = {
        "message": "the request exceeds the available context size. try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 3031,
        "n_ctx": 1024,
    }
    failure = refused(error)
    assert isinstance(failure, ContextLengthExceeded)
    assert (failure.metadata["prompt_tokens"], failure.metadata["context_length"]) == (3031, 1024)


def test_without_numbers_there_are_none() -> None:
    failure = refused({"message": "Prompt exceeds max length"})
    assert type(failure) is InvalidRequest
    assert failure.metadata["context_length"] is None
    assert "longer than the model's context length" in failure.message


def _expected(numbers: Mapping[str, int]) -> Overflow:
    prompt = numbers.get("prompt")
    if prompt is not None:
        prompt += numbers.get("tools", 0)
    elif "over" in numbers and "context" in numbers:
        prompt = numbers["context"] + numbers["over"]
    return Overflow(prompt, numbers.get("output"), numbers.get("context"))


@given(st.data())
def test_the_numbers_of_every_wording(data: st.DataObject) -> None:
    """Every wording, with any numbers, spaces, separators of thousands and words around it."""
    _, wording = data.draw(st.sampled_from([one for one in WORDINGS if "{total}" not in one[1]]))
    names = re.findall(r"\{(\w+)\}", wording)
    numbers: dict[str, int] = {name: data.draw(st.integers(0, 10**9)) for name in names}
    thousands = data.draw(st.booleans())
    written = {
        name: f"{number:,}" if thousands else str(number) for name, number in numbers.items()
    }
    text = wording.replace("…", data.draw(st.sampled_from([" ", " at least ", " Use less. The "])))
    words: Any = f"Error: {text.format(**written)}. Try less.".replace(
        " ", data.draw(st.sampled_from([" ", "\n"]))
    )
    assert overflow({"message": words}) == _expected(numbers)


@given(st.text(max_size=3000))
def test_any_text_is_read(words: str) -> None:
    overflow({"message": words})
