"""Entries beside the file: by the same rules, the file wins, and what does not hold is left out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from causerie.composition.account_frontend import model_prices
from causerie.settings.doors import default_address
from causerie.settings.entries import Entry, EntryKind, merged
from causerie.settings.load import Loaded, Override, load
from causerie.settings.problems import SettingsError

FILE = """
[[models]]
id = "own"
engine = "fake"
[[providers]]
name = "filed"
base_url = "http://127.0.0.1:9/v1"
"""
NORTH = Entry("provider", "north", {"base_url": "http://127.0.0.1:8/v1"})
CHAT = Entry("alias", "chat", {"targets": [{"provider": "north", "model": "m"}]})


def read(folder: Path, entries: Sequence[Entry], text: str = FILE) -> Loaded:
    file = folder / "causerie.toml"

    def with_entries(entries: Sequence[Entry], text: str | None) -> Loaded:
        return load(file=file, text=text, environ={}, entries=entries)

    return merged(with_entries, entries, text)


def test_entries_are_a_part_of_the_settings(tmp_path: Path) -> None:
    known = Entry("provider", "mine", {"known": "openai"})
    found = read(tmp_path, [NORTH, CHAT, known])
    assert found.left_out == {}
    settings = found.settings
    assert [one.name for one in settings.providers] == ["filed", "north", "mine"]
    assert settings.providers[2].base_url == "https://api.openai.com/v1"
    assert [one.id for one in settings.aliases] == ["chat"]
    assert [door.name for door in settings.doors] == ["endpoint", "gateway"]
    assert default_address(settings).door.name == "endpoint", "what clients ask stays"
    assert [one.id for one in settings.models] == ["own"]
    assert found.where(("providers", 1, "base_url")) == 'the entry of provider "north"'
    assert found.where(("providers", 0, "name")).endswith("causerie.toml:6")


def test_models_of_a_file_that_sets_none_stay(tmp_path: Path) -> None:
    found = read(tmp_path, [NORTH, CHAT], "[server]\nport = 9\n")
    assert found.settings.models == load(text="", environ={}).settings.models
    assert len(found.settings.aliases) == 1


HERE = "http://x.example/v1"
CHANNELS = """
[[alerts.webhooks]]
name = "ops"
url = "https://ops.example/hook"
secret = { env = "OPS" }
[mail]
host = "mail.example"
sender = "a@example.org"
"""
WRONG: list[tuple[EntryKind, str, dict[str, object], str]] = [
    ("provider", "filed", {"base_url": HERE}, "causerie.toml:5, which"),
    ("provider", "x", {"base_url": "nowhere"}, "base_url: is"),
    ("provider", "x", {"base_url": HERE, "colour": 1}, "colour: "),
    ("provider", "x", {"base_url": HERE, "dialect": "latin"}, "dialect: "),
    ("provider", "x", {"known": "openai", "key": {"env": "HOME"}}, "key: only the file"),
    ("provider", "x", {"known": "openai", "proxy": {"env": "P"}}, "proxy: only the file"),
    ("provider", "x", {"known": "openai", "tls": {"ca_file": "/x"}}, "tls.ca_file: only"),
    ("alias", "own", {"targets": [{"provider": "filed", "model": "m"}]}, "is taken by"),
    ("alias", "x", {"targets": [{"provider": "gone", "model": "m"}]}, "no provider is"),
    ("alias", "x", {}, "targets: "),
    ("provider", "own", {"base_url": HERE}, 'of provider "own"'),
    ("model", "own", {"ref": "hf:a/b"}, "causerie.toml:2, which wins; an entry may add name"),
    ("model", "priced", {"price": {"prompt": "2"}}, "price: is set by"),
    ("model", "priced", {}, "is taken by"),
    ("model", "x", {"engine": "mine"}, "engine: only the file"),
    ("model", "x", {"ref": "/weights.gguf"}, "ref: only the file"),
    ("model", "x", {"ref": "hf:a/b", "template": "/t"}, "template: only the file"),
    ("model", "x", {"ref": "hf:a/b", "llamacpp": {"lora": ["/l"]}}, "llamacpp.lora: only"),
    ("model", "x", {"ref": "hf:a/b", "llamacpp": {"command": "id"}}, "llamacpp.command: only"),
    ("model", "x", {"ref": "hf:a/b", "vllm": {"command": "id"}}, "vllm.command: only"),
    ("model", "x", {"ref": "hf:a/b", "keys": ["0" * 64]}, "keys: only the file"),
    ("model", "x", {"engine": "fake", "options": {"a": 1}}, "options: only the file"),
    ("model", "x", {}, "ref: is missing"),
    ("catalog_model", "no-slug", {"endpoints": [{"model": "own"}]}, "id: is"),
    ("catalog_model", "a/b", {"endpoints": [{"model": "gone"}]}, "no model of our own"),
    ("door", "open", {"kind": "endpoint", "keys": "off"}, "keys: only the file"),
    ("door", "endpoint", {"kind": "gateway"}, "an entry may add models"),
    ("door", "endpoint", {"models": ["gone"]}, "models: no model of our own"),
    ("door", "two", {"kind": "endpoint", "prefix": "/console"}, "is in use by the service"),
    ("door", "two", {"limits": {"concurrent": 1}}, "kind: is missing, and the file has no door"),
    ("webhook", "ops", {"url": "https://x.example"}, "causerie.toml:16, which wins"),
    ("webhook", "x", {"url": "http://x.example"}, "url: begins with `http://`"),
    ("webhook", "x", {"url": "https://x.example", "secret": {"env": "S"}}, "secret: only the"),
    ("webhook", "x", {"url": "https://x.example", "ca_file": "/x"}, "ca_file: only the file"),
    ("webhook", "owners", {"url": "https://x.example"}, "stands for the owners of keys"),
    ("email", "ops", {"to": ["a@example.org"]}, '"ops" is taken; names are unique'),
    ("email", "x", {"to": ["nobody"]}, "to: is"),
]


@pytest.mark.parametrize("kind", ["gateway", "router"])
def test_an_empty_door_with_accounts_waits_for_entries(tmp_path: Path, kind: str) -> None:
    """No model is loaded that the door does not have, and what is added may be of another kind."""
    text = f'[server]\nkeys = "accounts"\n[[doors]]\nname = "door"\nkind = "{kind}"\n'
    assert read(tmp_path, [], text).settings.models == ()
    endpoint = {"provider": "north", "model": "m", "price": {"prompt": "1"}}
    listed = Entry("catalog_model", "a/b", {"endpoints": [endpoint]})
    for entry in (CHAT, listed):
        assert read(tmp_path, [NORTH, entry], text).left_out == {}


def test_an_empty_file_with_accounts_is_filled_by_entries(tmp_path: Path) -> None:
    empty = 'models = []\n[[doors]]\nname = "hosted"\nkind = "hosted"\n'
    assert read(tmp_path, [], empty).settings.models == ()
    found = read(tmp_path, [NORTH, CHAT], empty)
    assert found.left_out == {}
    assert default_address(found.settings).models == ("chat",)
    with pytest.raises(SettingsError, match="at least one model or alias"):
        read(tmp_path, [], "models = []\n")


@pytest.mark.parametrize(
    ("entry", "words"),
    [(Entry(kind, name, body), words) for kind, name, body, words in WRONG],
)
def test_an_entry_that_does_not_hold_is_left_out_with_its_reason(
    tmp_path: Path, entry: Entry, words: str
) -> None:
    text = FILE + '[[models]]\nid = "own/model"\nengine = "fake"\n'
    text += '[[models]]\nid = "priced"\nengine = "fake"\nprice = { prompt = "1" }\n'
    text += CHANNELS
    found = read(tmp_path, [NORTH, entry, CHAT], text)
    assert list(found.left_out) == [entry.key]
    assert words in "; ".join(found.left_out[entry.key])
    assert [one.name for one in found.settings.providers] == ["filed", "north"]
    assert [one.id for one in found.settings.aliases] == ["chat"]


def test_channels_of_alerts_are_entries_and_open_no_door(tmp_path: Path) -> None:
    hook = Entry("webhook", "pager", {"url": "https://x.example/a", "kinds": ["job"]})
    letters = Entry("email", "night", {"to": ["a@example.org"]})
    found = read(tmp_path, [hook, letters], FILE + CHANNELS)
    assert found.left_out == {}
    alerts = found.settings.alerts
    assert [one.name for one in alerts.webhooks] == ["ops", "pager"]
    assert [one.kinds for one in alerts.webhooks][1] == ("job",)
    assert [one.to for one in alerts.emails] == [("a@example.org",)]
    assert found.where(("alerts", "webhooks", 1, "url")) == 'the entry of webhook "pager"'
    assert found.settings.doors == read(tmp_path, []).settings.doors
    lone = read(tmp_path, [letters]).left_out[letters.key]
    assert "needs `mail.host`" in lone[0]
    with pytest.raises(SettingsError, match=r"secret.*is missing"):
        read(tmp_path, [hook], FILE + CHANNELS.partition("secret")[0])


def test_what_stands_on_a_broken_entry_is_left_out_too(tmp_path: Path) -> None:
    broken = Entry("provider", "north", {"base_url": "nowhere"})
    found = read(tmp_path, [broken, CHAT])
    assert set(found.left_out) == {broken.key, CHAT.key}
    assert found.settings == load(text=FILE, file=tmp_path / "causerie.toml", environ={}).settings


def test_what_the_file_does_not_set_is_added_to_what_it_names(tmp_path: Path) -> None:
    added = [
        Entry("model", "own", {"price": {"prompt": "3"}, "queue": {"max_waiting": 1}}),
        Entry("door", "endpoint", {"limits": {"concurrent": 2}, "unknown_params": "reject"}),
    ]
    found = read(tmp_path, added)
    assert found.left_out == {}
    [model], [door] = found.settings.models, found.settings.doors
    assert (model.engine, model.price.prompt, model.queue.max_waiting) == ("fake", "3", 1)
    assert (door.limits.concurrent, door.unknown_params) == (2, "reject")
    assert found.where(("models", 0, "price", "prompt")) == 'the entry of model "own"'
    assert found.where(("models", 0, "id")).endswith("causerie.toml:3")
    wrong = Entry("model", "own", {"price": {"prompt": "free"}})
    assert "price.prompt: is" in read(tmp_path, [wrong]).left_out[wrong.key][0]


def test_the_highest_price_fits_the_database_for_any_number_of_tokens(tmp_path: Path) -> None:
    parts = ("prompt", "completion", "cached", "reasoning", "request")
    highest = Entry("model", "own", {"price": dict.fromkeys(parts, "2000000")})
    found = read(tmp_path, [highest])
    [price] = model_prices(found.settings).models.values()
    most = 2**31 - 1
    assert price.most(most, most) < 2**63
    for part in parts:
        over = Entry("model", "own", {"price": {part: "2000000.000000001"}})
        [problem] = read(tmp_path, [over]).left_out[over.key]
        assert (
            f'price.{part}: is "2000000.000000001"; it takes an amount of at most 2,000,000'
            in problem
        )


def test_models_catalog_and_doors_are_entries_too(tmp_path: Path) -> None:
    made = [
        Entry("model", "second", {"engine": "fake"}),
        Entry(
            "catalog_model",
            "us/second",
            {"endpoints": [{"model": "second"}], "created": "2026-01-02"},
        ),
        Entry("door", "more", {"kind": "endpoint", "models": ["second"]}),
    ]
    found = read(tmp_path, made, "")
    assert found.left_out == {}
    assert [one.id for one in found.settings.models] == ["smollm2-135m", "second"]
    assert [one.name for one in found.settings.doors] == ["endpoint", "router", "more"]
    off = Entry("model", "second", {"engine": "fake"}, enabled=False)
    assert set(read(tmp_path, [off, *made[1:]], "").left_out) == {made[1].key, made[2].key}


def test_models_of_the_command_line_are_all_that_there_are(tmp_path: Path) -> None:
    flag = Override("models", ({"id": "own", "engine": "fake"},), "the command line")

    def with_flag(entries: Sequence[Entry], _: str | None) -> Loaded:
        return load(text="", environ={}, folder=tmp_path, overrides=[flag], entries=entries)

    price = Entry("model", "own", {"price": {"prompt": "3"}})
    second = Entry("model", "second", {"engine": "fake"})
    found = merged(with_flag, [price, second])
    assert found.left_out == {second.key: ("the command line says which models there are",)}
    assert [(one.id, one.price.prompt) for one in found.settings.models] == [("own", "3")]


def test_limits_of_the_default_gateway_are_no_other_door(tmp_path: Path) -> None:
    limits = Entry("door", "gateway", {"limits": {"concurrent": 2}})
    found = read(tmp_path, [NORTH, CHAT, limits])
    assert [(one.name, one.kind) for one in found.settings.doors] == [
        ("endpoint", "endpoint"), ("gateway", "gateway"),
    ]  # fmt: skip
    assert found.settings.doors[1].limits.concurrent == 2
    assert list(read(tmp_path, [NORTH, limits]).left_out) == [limits.key]


def test_models_of_a_mere_gateway_get_the_last_door(tmp_path: Path) -> None:
    alias = '[[aliases]]\nid = "a"\ntargets = [{ provider = "filed", model = "m" }]\n'
    text = FILE.partition("[[providers]]")[2]
    made = Entry("model", "second", {"engine": "fake"})
    found = read(tmp_path, [made], f"[[providers]]{text}{alias}")
    assert [one.name for one in found.settings.doors] == ["gateway", "endpoint"]
    assert [one.id for one in found.settings.models] == ["second"]


def test_a_provider_that_is_switched_off_is_no_target(tmp_path: Path) -> None:
    off = Entry("provider", "north", NORTH.body, enabled=False)
    both = Entry("alias", "both", {"targets": [*CHAT.body["targets"], {"model": "own"}]})
    found = read(tmp_path, [off, CHAT, both])
    assert list(found.left_out) == [CHAT.key]
    [alias] = found.settings.aliases
    assert [target.model for target in alias.targets] == ["own"]


def test_a_file_that_does_not_hold_alone_is_not_mended_by_entries(tmp_path: Path) -> None:
    text = FILE + '[[aliases]]\nid = "a"\ntargets = [{ provider = "north", model = "m" }]\n'
    with pytest.raises(SettingsError, match='no provider is named "north"'):
        read(tmp_path, [NORTH], text)
