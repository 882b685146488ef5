"""Refusals of a provider, as errors of ours: whose fault it is, and none of its secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from causerie.errors import (
    ContextLengthExceeded,
    InvalidRequest,
    Overloaded,
    ServiceError,
    UpstreamFailed,
)
from causerie.providers.dialects import GENERIC, MISTRAL
from causerie.providers.phrase import phrase
from causerie.providers.refusal import refusal


def refused(
    status: int, error: Any = None, headers: Mapping[str, str] | None = None
) -> ServiceError:
    body = b"" if error is None else json.dumps({"error": error}).encode()
    return refusal(status, headers or {}, body, GENERIC)


@pytest.mark.parametrize(
    ("status", "kind", "ours", "code"),
    [
        (307, UpstreamFailed, 502, "bad_gateway"),
        (400, InvalidRequest, 400, "invalid_value"),
        (401, UpstreamFailed, 502, "bad_gateway"),
        (402, UpstreamFailed, 502, "bad_gateway"),
        (403, UpstreamFailed, 502, "bad_gateway"),
        (404, UpstreamFailed, 502, "bad_gateway"),
        (408, UpstreamFailed, 504, "upstream_timeout"),
        (413, InvalidRequest, 413, "invalid_value"),
        (422, InvalidRequest, 400, "invalid_value"),
        (429, Overloaded, 503, "no_endpoint"),
        (500, UpstreamFailed, 502, "bad_gateway"),
        (503, UpstreamFailed, 502, "bad_gateway"),
        (504, UpstreamFailed, 504, "upstream_timeout"),
        (529, Overloaded, 503, "no_endpoint"),
    ],
)
def test_whose_fault_it_is(status: int, kind: type[ServiceError], ours: int, code: str) -> None:
    failure = refused(status, {"message": "secret words of the server"})
    assert type(failure) is kind
    assert (failure.status, failure.code) == (ours, code)
    assert failure.metadata["upstream_status"] == status
    shown = status in (400, 413, 422)
    assert ("secret words" in failure.message) == shown


@pytest.mark.parametrize(
    "words",
    [
        "API key not valid. Please pass a valid API key.",
        "Incorrect API key provided: ab***yz.",
        "Invalid API Key",
    ],
)
def test_our_key_is_not_the_client_s_fault_whatever_the_status(words: str) -> None:
    failure = refused(400, {"message": words})
    assert (type(failure), failure.status) == (UpstreamFailed, 502)
    assert failure.message == "The provider did not accept our credentials."


def test_a_server_that_is_full_or_loading() -> None:
    assert isinstance(refused(503, headers={"retry-after": "7"}), Overloaded)
    loading = refused(503, {"message": "Loading model", "type": "unavailable_error"})
    assert isinstance(loading, Overloaded)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 1),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "1.2"}, 2),
        ({"retry-after": "0"}, 1),
        ({"retry-after": "-5"}, 1),
        ({"retry-after": "inf"}, 1),
        ({"retry-after": "nonsense"}, 1),
        ({"retry-after": "999999"}, 3600),
        (
            {
                "retry-after": "Sat, 21 Nov 2026 10:00:30 GMT",
                "date": "Sat, 21 Nov 2026 10:00:00 GMT",
            },
            30,
        ),
        ({"retry-after": "Sat, 21 Nov 2020 10:00:30 GMT"}, 1),
        ({"retry-after": "Sat, 21 Nov 99999999999999999999 10:00:30 GMT"}, 1),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], seconds: int) -> None:
    assert retry_after(headers) == seconds
    assert refused(429, headers=headers).headers["Retry-After"] == str(seconds)


WORDINGS = [
    (  # llama-server
        {"message": "request (3031 tokens) exceeds the available context size (1024 tokens), try "
         "increasing it", "type": "exceed_context_size_error", "n_prompt_tokens": 3031,
         "n_ctx": 1024, "code": 400},
        (3031, None, 1024),
    ),
    (  # OpenAI, DeepSeek, older vLLM
        {"message": "This model's maximum context length is 16384 tokens. However, you requested "
         "122946 tokens (112946 in the messages, 10000 in the completion). Please reduce the "
         "length of the messages or completion.", "code": "context_length_exceeded"},
        (112946, 10000, 16384),
    ),
    (
        {"message": "This model's maximum context length is 8192 tokens. However, your messages "
         "resulted in 9001 tokens."},
        (9001, None, 8192),
    ),
    (  # newer vLLM
        {"message": "This model's maximum context length is 4096 tokens. However, you requested "
         "100 output tokens and your prompt contains at least 3997 input tokens, for a total of "
         "at least 4097 tokens."},
        (3997, 100, 4096),
    ),
    (
        {"message": "The decoder prompt (length 5000) is longer than the maximum model length of "
         "2048."},
        (5000, None, 2048),
    ),
    (  # SGLang
        {"message": "The input (5000 tokens) is longer than the model's context length (4096 "
         "tokens)."},
        (5000, None, 4096),
    ),
    (
        {"message": "Requested token count exceeds the model's maximum context length of 4096 "
         "tokens. You requested a total of 5100 tokens: 5000 tokens from the input messages and "
         "100 tokens for the completion."},
        (5000, 100, 4096),
    ),
    (  # Mistral
        {"message": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with "
         "32768 maximum context length", "code": "3051"},
        (40000, None, 32768),
    ),
    (  # LM Studio
        {"message": "Trying to keep the first 5000 tokens when context the overflows. However, "
         "the model is loaded with context length of only 4096 tokens, which is not enough."},
        (5000, None, 4096),
    ),
    (  # the aggregating router
        {"message": "This provider's maximum context length is 8192 tokens. However, you requested "
         "about 9100 tokens (9000 of text input, 100 in the output)."},
        (9000, 100, 8192),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("error", "counts"), WORDINGS)
@pytest.mark.parametrize("status", [400, 413, 500])
def test_a_prompt_that_does_not_fit(
    error: dict[str, Any], counts: tuple[int, int | None, int], status: int
) -> None:
    failure = refused(status, error)
    assert isinstance(failure, ContextLengthExceeded)
    assert (failure.status, failure.code) == (400, "context_length_exceeded")
    names = ("prompt_tokens", "max_tokens", "context_length")
    assert tuple(failure.metadata[name] for name in names) == counts
    assert failure.metadata["upstream_status"] == status


@pytest.mark.parametrize("at_least", [False, True])
def test_our_own_words_are_understood_behind_another_of_us(at_least: bool) -> None:
    counts = {"prompt_tokens": 9031, "max_tokens": 500, "context_length": 8192}
    said = ContextLengthExceeded(**counts, at_least=at_least)
    failure = refused(400, {"message": said.message, "code": said.code})
    assert isinstance(failure, ContextLengthExceeded)
    assert counts.items() <= failure.metadata.items()


def test_a_prompt_that_does_not_fit_without_numbers() -> None:
    failure = refused(400, {"message": "the request exceeds the available context size"})
    assert (type(failure), failure.code) == (InvalidRequest, "context_length_exceeded")
    assert failure.metadata["context_length"] is None
    assert "longer than the model's context length" in failure.message


def test_litellm_knows_by_its_words_a_prompt_that_does_not_fit() -> None:
    """It looks for them to raise its ``ContextWindowExceededError``, and at no code."""
    failure = ContextLengthExceeded(prompt_tokens=9, max_tokens=None, context_length=8)
    assert "This model's maximum context length is" in failure.message


def test_the_parameter_by_our_client_s_name() -> None:
    error = {"message": "must be positive", "param": "random_seed"}
    body = json.dumps({"error": error}).encode()
    assert refusal(400, {}, body, MISTRAL).param == "seed"
    assert refused(400, {**error, "param": "tools[0].function"}).param == "tools[0].function"
    assert refused(400, {**error, "param": "a b\r\nc"}).param is None


@pytest.mark.parametrize(
    "body",
    [b"", b"<html><body>nginx 1.2</body></html>", b"\xff\xfe", b"[]", b'"x"', b'{"error": 3}',
     b'{"detail": [{"loc": ["body"]}]}', b'{"error": {"message": ["x"]}}',
     pytest.param(b"[" * 9999, id="deep")],
)  # fmt: skip
def test_bodies_that_say_nothing(body: bytes) -> None:
    failure = refusal(400, {}, body, GENERIC)
    assert failure.message == "The provider refused the request."


@pytest.mark.parametrize(
    "body",
    [
        b'{"error": "bad thing"}',
        b'{"message": "bad thing"}',
        b'{"detail": "bad thing"}',
        b'{"object": "error", "message": "bad thing", "code": 400}',
        b'{"error": {"detail": "bad thing"}}',
        b'[{"error": {"message": "bad thing"}}]',
    ],
)
def test_where_servers_put_their_words(body: bytes) -> None:
    assert refusal(400, {}, body, GENERIC).message == "The provider refused the request: bad thing"


FAULTS = [
    {"type": "extra_forbidden", "loc": ["body", "random_seed"], "msg": "Not permitted", "input": 4},
    {"loc": ["body", "messages", 0, "user", "name"], "msg": "Too long", "input": "Ada"},
    {"loc": ["body"], "msg": "Odd"},
]


@pytest.mark.parametrize(
    "told",
    [
        {"detail": FAULTS},
        {"object": "error", "message": {"detail": FAULTS}, "param": None, "code": None},
        {"object": "Error", "detail": FAULTS, "message": FAULTS, "code": 3001},
        {"error": {"message": FAULTS}},
    ],
)
def test_what_a_validator_has_found(told: dict[str, Any]) -> None:
    failure = refusal(422, {}, json.dumps(told).encode(), MISTRAL)
    assert failure.message == (
        "The provider refused the request: random_seed: Not permitted; "
        "messages.0.user.name: Too long; body: Odd"
    )
    assert failure.param == "seed"


def test_codes_are_kept_where_they_are_words() -> None:
    assert refused(500, {"code": "insufficient_quota"}).metadata["upstream_code"] == (
        "insufficient_quota"
    )
    assert "upstream_code" not in refused(500, {"code": "at 10.0.0.5:80, key=x"}).metadata


SECRETS = [
    "sk-proj-abcdefghijklmnop1234",
    "sk-abc***********wxyz",
    "Bearer abcdefghijklmn",
    "api_key=s3cr3tvalue",
    "authorization: 'Basic Zm9vOmJhcg=='",
    "Authorization: Bearer s3cr3tvalue",
    "https://user:pass@internal.example/v1?key=abc",
    "http://10.0.0.5:8000/v1",
    "192.168.1.17:8000",
    "fd00:1234:5678::1",
    "vllm-7.models.svc.cluster.local:8000",
    "localhost:11434",
    "backend.internal",
    "/opt/vllm/models/secret-model/config.json",
    "C:\\models\\secret\\file.gguf",
    "someone@example.org",
    "hf_abcdefghijklmnopqrst",
    "0123456789abcdef0123456789abcdef",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_what_is_not_the_client_s_is_taken_out(secret: str) -> None:
    shown = phrase(f"Invalid value near {secret} for field temperature")
    assert shown.startswith("Invalid value near")
    assert shown.endswith("for field temperature")
    assert secret not in shown
    assert not {part for part in secret.split("/") if len(part) > 5} & set(shown.split())
    failure = refused(400, {"message": f"x {secret}", "param": secret, "code": secret})
    assert secret not in msgspec.json.encode(failure.body()).decode()


@pytest.mark.parametrize(
    "words",
    [
        "temperature must be at most 2.0, got 3.5",
        "Invalid tool_choice type: 'object'. Supported string values: none, auto, required",
        "'response_format.type' must be 'json_schema' or 'text'",
        "Field 'n': Value must be between 1 <= value <= 2, but got 3",
        "tools[0].function.name: expected a string",
        "Value must be one of: low/medium/high",
        "The schema at #/properties/a/type must be one of object, array, string",
        "No key was sent; send the header `Authorization: Bearer KEY`.",
    ],
)
def test_words_about_the_request_are_kept(words: str) -> None:
    assert phrase(words) == words


def test_pages_and_traces_are_not_words() -> None:
    assert phrase("<!DOCTYPE html><h1>Bad</h1>") == ""
    assert phrase('Traceback (most recent call last): File "x.py"') == ""
    assert phrase(None) == phrase(["x"]) == ""


@given(st.text())
@example("a\nb\x00c\u2028d")
@example("word " * 1000)
@settings(deadline=None)
def test_a_phrase_is_one_short_line(words: str) -> None:
    shown = phrase(words)
    assert len(shown) <= 300
    assert shown.isprintable()


@given(st.integers(300, 599), st.binary(max_size=200), st.text(max_size=20))
@settings(deadline=None)
def test_every_refusal_is_an_error_of_ours(status: int, body: bytes, wait: str) -> None:
    failure = refusal(status, {"retry-after": wait}, body, GENERIC)
    assert 400 <= failure.status < 600
    assert failure.metadata["upstream_status"] == status
