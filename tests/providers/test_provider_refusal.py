"""Refusals of a provider, as errors of ours: whose fault it is, and none of its secrets."""

from __future__ import annotations

import base64
import json
import random
import re
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from casekit import each_of
from hypothesis import example, given, settings
from hypothesis import strategies as st

from causerie.errors import (
    ContextLengthExceeded,
    ErrorClass,
    InvalidRequest,
    Overloaded,
    ServiceError,
    UpstreamFailed,
)
from causerie.providers.dialects import DIALECTS, GENERIC
from causerie.providers.refusal import failure_in_reply, hide_credential, phrase, refusal

DOCS = Path(__file__).parents[2] / "docs"


def refused(
    status: int, error: Any = None, headers: Mapping[str, str] | None = None
) -> ServiceError:
    body = b"" if error is None else json.dumps({"error": error}).encode()
    return refusal(status, headers or {}, body, GENERIC)


@each_of(
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
        (405, UpstreamFailed, 502, "bad_gateway"),
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
    assert failure.error_class is ErrorClass.REJECTED_KEY
    assert failure.message == "The provider did not accept our credentials."


@each_of(
    ("status", "error", "cause"),
    [
        (302, {}, ErrorClass.WRONG_ADDRESS),
        (401, {}, ErrorClass.REJECTED_KEY),
        (402, {}, ErrorClass.QUOTA),
        (403, {}, ErrorClass.FORBIDDEN),
        (404, {}, ErrorClass.MODEL_NOT_FOUND),
        (405, {}, ErrorClass.WRONG_ADDRESS),
        (429, {"code": "insufficient_quota"}, ErrorClass.QUOTA),
        (429, {"type": "insufficient_quota"}, ErrorClass.QUOTA),
        (429, {"message": "You exceeded your current quota, check your plan."}, ErrorClass.QUOTA),
        (400, {"message": "Your credit balance is too low to access"}, ErrorClass.QUOTA),
        (400, {"code": "Arrearage", "message": "Access denied"}, ErrorClass.QUOTA),
        (429, {"message": "slow"}, ErrorClass.RATE_LIMITED),
        (
            429,
            {"message": "You exceeded your current quota. Please retry in 20s."},
            ErrorClass.RATE_LIMITED,
        ),
        (413, {"code": "rate_limit_exceeded", "message": "TPM"}, ErrorClass.RATE_LIMITED),
        (529, {}, ErrorClass.OVERLOADED),
        (503, {"type": "unavailable_error"}, ErrorClass.OVERLOADED),
        (500, {}, ErrorClass.SERVER_ERROR),
        (504, {}, ErrorClass.TIMEOUT),
        (400, {"message": "odd"}, ErrorClass.INVALID_REQUEST),
        (400, {"code": "context_length_exceeded"}, ErrorClass.CONTEXT_LENGTH),
    ],
)
def test_each_cause_has_its_class(
    status: int, error: Mapping[str, object], cause: ErrorClass
) -> None:
    failure = refused(status, error)
    assert failure.error_class is cause
    retryable = msgspec.to_builtins(failure.body())["error"]["metadata"].get("retryable", False)
    assert retryable == (failure.status >= 500 and not cause.is_rejection)
    if status >= 400:
        within = failure_in_reply({"code": status, **error}, started=False)
        assert within.error_class in (cause, ErrorClass.SERVER_ERROR)
    started = failure_in_reply({"code": status, **error}, started=True)
    assert started.error_class is ErrorClass.BROKEN_STREAM


def test_a_server_that_is_full_or_loading() -> None:
    assert isinstance(refused(503, headers={"retry-after": "7"}), Overloaded)
    loading = refused(503, {"message": "Loading model", "type": "unavailable_error"})
    assert isinstance(loading, Overloaded)


@pytest.mark.parametrize("at_least", [False, True])
def test_our_own_words_are_understood_behind_another_of_us(at_least: bool) -> None:
    counts = {"prompt_tokens": 9031, "max_tokens": 500, "context_length": 8192}
    said = ContextLengthExceeded(**counts, at_least=at_least)
    failure = refused(400, {"message": said.message, "code": said.code})
    assert isinstance(failure, ContextLengthExceeded)
    assert counts.items() <= failure.metadata.items()


def test_litellm_knows_by_its_words_a_prompt_that_does_not_fit() -> None:
    """It looks for them to raise its ``ContextWindowExceededError``, and at no code."""
    failure = ContextLengthExceeded(prompt_tokens=9, max_tokens=None, context_length=8)
    assert "This model's maximum context length is" in failure.message


def test_the_parameter_by_our_client_s_name() -> None:
    error = {"message": "must be positive", "param": "random_seed"}
    body = json.dumps({"error": error}).encode()
    assert refusal(400, {}, body, DIALECTS["mistral"]).param == "seed"
    assert refused(400, {**error, "param": "tools[0].function"}).param == "tools[0].function"
    assert refused(400, {**error, "param": "a b\r\nc"}).param is None


@each_of(
    "body",
    [b"", b"<html><body>nginx 1.2</body></html>", b"\xff\xfe", b"[]", b'"x"', b'{"error": 3}',
     b'{"detail": [{"loc": ["body"]}]}', b'{"error": {"message": ["x"]}}',
     pytest.param(b"[" * 9999, id="deep")],
)  # fmt: skip
def test_bodies_that_say_nothing(body: bytes) -> None:
    failure = refusal(400, {}, body, GENERIC)
    assert failure.message == "The provider refused the request."


@each_of(
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
    failure = refusal(422, {}, json.dumps(told).encode(), DIALECTS["mistral"])
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


@each_of("secret", SECRETS)
def test_what_is_not_the_client_s_is_taken_out(secret: str) -> None:
    shown = phrase(f"Invalid value near {secret} for field temperature")
    assert shown.startswith("Invalid value near")
    assert shown.endswith("for field temperature")
    assert secret not in shown
    assert not {part for part in secret.split("/") if len(part) > 5} & set(shown.split())
    failure = refused(400, {"message": f"x {secret}", "param": secret, "code": secret})
    assert secret not in msgspec.json.encode(failure.body()).decode()


@each_of(
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
        "Incorrect API key provided.",
        "Invalid API Key provided",
        "API key expired. Please renew the API key.",
        "Input token exceeds the maximum",
        "max_tokens: token budget is too large",
    ],
)
def test_words_about_the_request_are_kept(words: str) -> None:
    assert phrase(words) == words


PAGES = "\n".join(page.read_text() for page in DOCS.rglob("*.md"))
WORDS = sorted({*re.findall(r"\b[a-z_]{6,}\b", PAGES)} - {"localhost", "bearer"})
CHANCE = st.integers(0, 2**32).map(random.Random)
CREDENTIAL_WORDS = ("API key", "api_key:", "The token", "tokens", "secret", "password =", "Bearer")
ALPHABETS = (
    string.ascii_letters + string.digits,
    string.ascii_lowercase + string.digits,
    string.ascii_letters + string.digits + "-_",
    "0123456789abcdef",
)


@given(st.lists(st.sampled_from(WORDS), min_size=2, max_size=9), st.sampled_from(CREDENTIAL_WORDS))
def test_ordinary_words_are_kept(words: list[str], credential: str) -> None:
    text = f"Invalid {credential} {' '.join(words)}: {credential} {words[0]} 32768 tokens"
    assert phrase(text) == text or len(text) > 300


@given(CHANCE, st.sampled_from(ALPHABETS), st.integers(40, 64))
def test_what_looks_like_a_secret_is_not(chance: random.Random, alphabet: str, length: int) -> None:
    secret = "".join(chance.choices(alphabet, k=length))
    for text in (f"The value {secret} is odd", f"API key {secret} provided", f"key 'sk-{secret}'"):
        assert secret not in phrase(text)


@given(CHANCE, st.integers(8, 80), st.sampled_from(WORDS))
def test_the_key_that_was_sent_is_hidden_in_any_form(
    chance: random.Random, length: int, word: str
) -> None:
    """Also cut, within other words, or encoded; and nothing else is."""
    key = "".join(chance.choices(string.ascii_letters + string.digits + "-_./+", k=length))
    encoded = base64.b64encode(f"user:{key}".encode()).decode()
    for form in (key, key[: length - 2] + "…", quote(key, safe=""), key.encode().hex(), encoded):
        shown = hide_credential(f"before {form} {word}", key)
        assert key not in shown
        assert not any(key[at : at + 8] in shown for at in range(length - 7))
        assert shown.startswith("before ")
        assert shown.endswith(f" {word}")


def test_a_short_key_is_hidden_where_it_stands_alone() -> None:
    assert hide_credential("The key EMPTY is odd, EMPTYING is not", "EMPTY") == (
        "The key … is odd, EMPTYING is not"
    )
    assert (
        hide_credential("Nothing here", None)
        == hide_credential("Nothing here", "sk")
        == "Nothing here"
    )


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


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=5,
)
_FIELDS = ("message", "type", "code", "param", "status", "detail", "details", "metadata", "n_ctx")


@given(
    st.sampled_from([307, 400, 401, 403, 404, 413, 422, 429, 500, 503, 529]),
    st.dictionaries(st.sampled_from(_FIELDS), _VALUES),
)
@example(503, {"type": ["overloaded"]})
@settings(deadline=None)
def test_an_error_may_have_values_of_any_type(status: int, error: dict[str, Any]) -> None:
    assert refused(status, error).metadata["upstream_status"] == status
    for started in (False, True):
        assert "upstream_status" in failure_in_reply(error, started=started).metadata
