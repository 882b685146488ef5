"""Keys: off, right, wrong, missing."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from casekit import each_of
from edgekit import ASK, KEY, LOCKED, OPEN, ROUTER, ScriptedPipeline, call, make_edge

from causerie.access.keys import Credential, KeyDigest, StaticKeys, sent_credential
from causerie.errors import Unauthenticated
from causerie.http.head import Headers


def test_a_placeholder_is_ignored_where_keys_are_off() -> None:
    keys = StaticKeys()
    for credential in (None, Credential.of("placeholder")):
        caller = keys.authenticate(OPEN, credential)
        assert (caller.key, caller.door) == ("", "open")


def test_the_right_key_is_known_by_its_public_name() -> None:
    caller = StaticKeys().authenticate(LOCKED, Credential.of(KEY))
    assert (caller.key, caller.door) == ("abc", "locked")


def test_a_known_key_is_known_to_that_door_alone() -> None:
    keys = StaticKeys()
    known = keys.authenticate(LOCKED, Credential.of(KEY))
    assert keys.authenticate(LOCKED, Credential.of(KEY)) is known
    elsewhere = keys.authenticate(ROUTER, Credential.of(KEY))
    assert (elsewhere.key, elsewhere.door) == ("abc", "router")
    renewed = replace(LOCKED, keys=(KeyDigest.of("new", "ck_new_secret"),))
    with pytest.raises(Unauthenticated):
        keys.authenticate(renewed, Credential.of(KEY))
    assert keys.authenticate(renewed, Credential.of("ck_new_secret")).key == "new"


def test_wrong_keys_get_one_answer() -> None:
    answers = set()
    for credential in ("", "x", KEY + "x", KEY[:-1], "é", "\ud800", "a" * 100_000):
        with pytest.raises(Unauthenticated) as caught:
            StaticKeys().authenticate(LOCKED, Credential.of(credential))
        answers.add(str(caught.value.body()))
    assert len(answers) == 1


def test_digests_are_read_as_the_configuration_writes_them() -> None:
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    assert KeyDigest.parse(f"ck_abc:{digest}") == KeyDigest.of("ck_abc", KEY)
    assert KeyDigest.parse(digest).id == digest[:8]
    for line in ("", "abc", digest[:-1], f"a b:{digest}", f"ck_abc:{digest}\n", digest.upper()):
        with pytest.raises(ValueError, match="64 hex digits"):
            KeyDigest.parse(line)


async def test_the_key_is_asked_for_before_the_body_is_read() -> None:
    pipeline = ScriptedPipeline()
    edge = make_edge(pipeline)
    path = "/endpoints/locked/v1/chat/completions"
    for header in (None, "Basic abc", "Bearer", "Bearer ", KEY):
        headers = {"authorization": header} if header else {}
        answer = await call(edge, path, b"not json", headers=headers)
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.error["code"] == "missing_api_key"
        assert answer.error["type"] == "authentication_error"
    wrong = await call(edge, path, ASK, headers={"authorization": "Bearer wrong"})
    assert (wrong.status, wrong.error["code"]) == (401, "invalid_api_key")
    assert b"wrong" not in wrong.body
    right = await call(edge, path, ASK, headers={"authorization": f"bearer {KEY}"})
    assert right.status == 200
    assert len(pipeline.requests) == 1


async def test_an_open_catalog_needs_no_key() -> None:
    edge = make_edge()
    assert (await call(edge, "/router/v1/models")).status == 200
    assert (await call(edge, "/endpoints/locked/v1/models")).status == 401
    assert (await call(edge, "/router/v1/chat/completions", ASK)).status == 401


@pytest.mark.parametrize("name", ["x-api-key", "api-key", "X-API-Key"])
async def test_a_key_may_come_in_other_headers(name: str) -> None:
    pipeline = ScriptedPipeline()
    edge, path = make_edge(pipeline), "/endpoints/locked/v1/chat/completions"
    assert (await call(edge, path, ASK, headers={name: KEY})).status == 200
    both = {name: KEY, "authorization": f"Bearer {KEY}"}
    assert (await call(edge, path, ASK, headers=both)).status == 200
    wrong = await call(edge, path, ASK, headers={name: "sk-something"})
    assert (wrong.status, wrong.error["code"]) == (401, "invalid_api_key")
    assert f"`{name.lower()}`" in wrong.error["message"]
    assert "`Authorization: Bearer KEY`" in wrong.error["message"]
    assert b"something" not in wrong.body
    assert (await call(edge, "/endpoints/open/v1/models", headers={name: "x"})).status == 200


@each_of(
    "headers",
    [
        [("x-api-key", KEY), ("authorization", "Bearer other")],
        [("x-api-key", KEY), ("api-key", "other")],
        [("x-api-key", KEY), ("x-api-key", "other")],
        [("authorization", f"Bearer {KEY}"), ("authorization", "Bearer other")],
        [("authorization", "Bearer other"), ("x-api-key", KEY), ("api-key", KEY)],
    ],
)
async def test_keys_that_differ_are_no_key(headers: list[tuple[str, str]]) -> None:
    path = "/endpoints/locked/v1/chat/completions"
    for given in (headers, headers[::-1]):
        reply = await call(make_edge(), path, ASK, headers=given)
        assert (reply.status, reply.error["code"]) == (401, "invalid_api_key")
        assert "several API keys" in reply.error["message"]
        assert KEY.encode() not in reply.body


async def test_a_key_without_bearer_is_told_where_it_belongs() -> None:
    reply = await call(make_edge(), "/endpoints/locked/v1/models", headers={"authorization": KEY})
    assert (reply.status, reply.error["code"]) == (401, "missing_api_key")
    assert "`Bearer`" in reply.error["message"]
    assert KEY.encode() not in reply.body


def test_no_key_stays_in_the_headers() -> None:
    headers = Headers({"authorization": f"Bearer {KEY}", "x-api-key": KEY, "host": "a"})
    headers.add_again("x-api-key", KEY)
    credential = sent_credential(headers, headers.take_keys())
    assert credential is not None
    assert credential.digest == Credential.of(KEY).digest
    assert (dict(headers), headers.again) == ({"host": "a"}, [])
