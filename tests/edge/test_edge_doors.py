"""Addresses lead to doors; a host name opens nothing by itself."""

from __future__ import annotations

import pytest
from casekit import each_of

from causerie.access.keys import KeyDigest
from causerie.errors import InvalidRequest, NotFound
from causerie.http.doors import DoorTable, MountedDoor
from causerie.http.head import host_name

ALPHA = MountedDoor("alpha", "/endpoints/alpha/v1", hosts=frozenset({"Alpha.localhost"}))
BETA = MountedDoor(
    "beta",
    "/endpoints/beta/v1",
    hosts=frozenset({"beta.localhost", "beta.llm.example"}),
    keys=(KeyDigest("k", bytes(32)),),
)
INNER = MountedDoor("inner", "/endpoints/alpha/v1/inner", hosts=frozenset())
TABLE = DoorTable([ALPHA, BETA, INNER], default="alpha", domains=["llm.example"])


@each_of(
    ("host", "path", "door", "rest"),
    [
        ("127.0.0.1:8000", "/v1/models", ALPHA, "/models"),
        ("[::1]:8000", "/v1/models", ALPHA, "/models"),
        ("localhost", "/v1/models", ALPHA, "/models"),
        ("LOCALHOST.:80", "/v1/models", ALPHA, "/models"),
        (None, "/v1/models", ALPHA, "/models"),
        ("service", "/v1", ALPHA, "/"),
        ("localhost", "/endpoints/beta/v1/models", BETA, "/models"),
        ("api.elsewhere.example", "/endpoints/beta/v1/models", BETA, "/models"),
        ("localhost", "/endpoints/alpha/v1/inner/models", INNER, "/models"),
        ("localhost", "/endpoints/alpha/v1/innermost", ALPHA, "/innermost"),
        ("alpha.localhost:8000", "/v1/chat/completions", ALPHA, "/chat/completions"),
        ("beta.llm.example", "/v1/models", BETA, "/models"),
        ("BETA.LLM.EXAMPLE", "/v1/models", BETA, "/models"),
        ("llm.example", "/v1/models", ALPHA, "/models"),
    ],
)
def test_an_address_leads_to_a_door(
    host: str | None, path: str, door: MountedDoor, rest: str
) -> None:
    assert TABLE.find(host, path) == (door, rest)


@each_of(
    ("host", "path"),
    [
        ("localhost", "/"),
        ("localhost", "/v1x/models"),
        ("localhost", "/v2/models"),
        ("localhost", "/endpoints/gamma/v1/models"),
        ("localhost", "/endpoints/alpha/v1x"),
        ("alpha.localhost", "/endpoints/beta/v1/models"),
        ("gamma.localhost", "/v1/models"),
        ("gamma.llm.example", "/v1/models"),
        ("x.alpha.localhost", "/v1/models"),
        ("attacker.example", "/v1/models"),
        ("attacker.example", "/endpoints/alpha/v1/models"),
        ("127.0.0.1.attacker.example", "/v1/models"),
    ],
)
def test_other_addresses_lead_nowhere(host: str, path: str) -> None:
    with pytest.raises(NotFound):
        TABLE.find(host, path)


@each_of(
    "host",
    [
        "a b",
        "a/b",
        "a@b",
        "a:b",
        "a:1:2",
        "[::1",
        "[::::]",
        "[127.0.0.1]",
        "http://a",
        "a\r\nb",
        "-a",
        "a..b/",
        "é",
        "," * 9,
    ],
)
def test_what_names_no_host_is_refused(host: str) -> None:
    with pytest.raises(InvalidRequest):
        TABLE.find(host, "/v1/models")


def test_ports_case_and_final_dots_do_not_matter() -> None:
    assert host_name("A.Localhost.:123") == "a.localhost"
    assert host_name("a:") == "a"
    assert host_name("[FE80::1]:80") == "[fe80::1]"
    assert host_name("") == ""
