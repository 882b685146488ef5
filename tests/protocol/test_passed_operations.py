"""Members of replies that pass through, of large ones without their arrays."""

from __future__ import annotations

import json

import pytest
from casekit import each_of

from causerie.protocol.operations import members

VECTOR = [0.123456] * 30_000


@each_of(
    "reply",
    [
        {"object": "list", "data": [{"embedding": VECTOR}], "model": "m", "usage": {"a": [1]}},
        {"model": "m[1]", "data": [{"embedding": VECTOR}], "note": "x"},
        {"data": [{"embedding": VECTOR}], "model": "m[1]"},
        {"model": "m", "data": VECTOR[:16_000], "note": 'a [b] ": [c'},
        {"nested": {"data": VECTOR[:16_000]}, "model": "m"},
        {"model": "m", "data": []},
    ],
)
def test_members_are_those_of_the_reply(reply: dict[str, object]) -> None:
    found = members(json.dumps(reply).encode())
    assert bytes(found["model"]) == json.dumps(reply["model"]).encode()
    whole = b"{%b}" % b",".join(
        json.dumps(name).encode() + b":" + bytes(value) for name, value in found.items()
    )
    assert json.loads(whole) == reply


@each_of("reply", [b"", b"[1]", b'{"a": [', b'{"data": [' + b"1," * 100_000])
def test_what_is_no_object_is_refused(reply: bytes) -> None:
    with pytest.raises(ValueError):
        members(reply)
