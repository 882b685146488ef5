"""From settings to the service: doors, limits, the address."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import to_builtins

from causerie.access.keys import Credential, KeyDigest, StaticKeys
from causerie.catalog.catalog import Catalog
from causerie.catalog.model import ModelCard, ServedModel, TargetCapabilities
from causerie.cli.keys import digest_line, new_key
from causerie.composition.account_frontend import LiveServiceView
from causerie.composition.doors import door_table, limits
from causerie.errors import NotFound, Unauthenticated
from causerie.http.connection import Listen
from causerie.protocol.alike import alike
from causerie.protocol.bounded_json import Bounds
from causerie.protocol.targets import Candidate
from causerie.settings.load import load
from causerie.settings.tree import Settings


def settings(folder: Path, text: str) -> Settings:
    file = folder / "causerie.toml"
    file.write_text(text, encoding="utf-8")
    return load(file=file, environ={}).settings


def test_without_a_file_there_is_one_open_door() -> None:
    table = door_table(Settings())
    door, rest = table.find("127.0.0.1:8000", "/v1/models")
    own = frozenset({"smollm2-135m"})
    assert (door.name, door.keys, door.models, rest) == ("endpoint", None, own, "/models")
    assert table.find("localhost", "/endpoints/endpoint/v1/models") == (door, "/models")
    assert table.find("endpoint.localhost:8000", "/v1/models") == (door, "/models")


def test_doors_have_their_own_addresses_and_models(tmp_path: Path) -> None:
    text = """
    [server]
    public_host = "llm.example.org"
    default_door = "b"
    [[doors]]
    name = "a"
    hosts = ["chat.example.org"]
    models = ["smollm2-135m"]
    [[doors]]
    name = "b"
    prefix = "/gateway/v1"
    """
    table = door_table(settings(tmp_path, text))
    assert table.find("localhost", "/v1/models")[0].name == "b"
    assert table.find("localhost", "/gateway/v1/models")[0].name == "b"
    for host in ("chat.example.org", "a.llm.example.org"):
        door, _ = table.find(host, "/v1/models")
        assert (door.name, door.models) == ("a", frozenset({"smollm2-135m"}))
    with pytest.raises(NotFound):
        table.find("c.llm.example.org", "/v1/models")


def test_names_for_people_are_the_consoles(tmp_path: Path) -> None:
    text = """
    [store]
    [[doors]]
    name = "hosted"
    kind = "hosted"
    [[models]]
    id = "small"
    engine = "fake"
    """
    small = ServedModel(ModelCard("small", "A small one"), [TargetCapabilities(Candidate("small"))])
    now = SimpleNamespace(settings=settings(tmp_path, text), catalog=Catalog([small]))
    running: Any = SimpleNamespace(now=now)
    unused: Any = None
    [shown] = LiveServiceView(running, unused, unused).models()
    assert (shown["id"], shown["name"]) == ("small", "A small one")
    assert "name" not in to_builtins(small.entry())


def test_a_key_that_was_made_opens_its_door(tmp_path: Path) -> None:
    key = new_key()
    text = f'[[doors]]\nname = "a"\nkeys = ["{digest_line(key)}"]\n'
    door, _ = door_table(settings(tmp_path, text)).find("localhost", "/v1/models")
    assert door.keys == (KeyDigest.parse(digest_line(key)),)
    caller = StaticKeys().authenticate(door, Credential.of(key))
    assert key.startswith(caller.key)
    with pytest.raises(Unauthenticated):
        StaticKeys().authenticate(door, Credential.of(key + "x"))


def test_limits_and_address(tmp_path: Path) -> None:
    text = """
    [server]
    port = 9000
    drain_seconds = 1
    busy_poll_seconds = 0
    max_body_bytes = 10
    body_seconds = 2
    max_nesting = 5
    max_values = 2000
    max_escapes = 30000
    max_messages = 6
    ping_seconds = 7
    """
    server = settings(tmp_path, text).server
    found = limits(server)
    assert (found.body.max_bytes, found.body.seconds) == (10, 2.0)
    work = Bounds(nesting=5, values=2000, escapes=30000)
    assert (found.work, found.max_messages, found.ping_seconds) == (work, 6, 7.0)
    address = alike(Listen, server)
    assert (address.host, address.port, address.drain_seconds) == ("127.0.0.1", 9000, 1.0)
    assert address.busy_poll_seconds == 0
