"""Aliases whose id ends in ``*``: every model of a provider by its own name."""

from __future__ import annotations

from pathlib import Path

import pytest
from faultkit import Reply, upstream
from hostedkit import office
from provider import ScriptedProvider, running
from servicekit import service_view

from causerie.settings.load import load
from causerie.settings.problems import SettingsError

CONFIG = """
[[doors]]
name = "gateway"
kind = "gateway"
keys = "off"
[[doors]]
name = "narrow"
kind = "gateway"
keys = "off"
models = ["openai/o-*"]
[[providers]]
name = "a"
base_url = "{a}"
health = {{ path = "" }}
[[providers]]
name = "b"
base_url = "{b}"
health = {{ path = "" }}
[[aliases]]
id = "openai/*"
targets = [{{ provider = "a", model = "*" }}]
[[aliases]]
id = "openai/o-*"
targets = [{{ provider = "b", model = "models/*/latest" }}]
[[aliases]]
id = "openai/exact"
targets = [{{ provider = "b", model = "other" }}]
"""


async def test_who_answers_a_name(tmp_path: Path) -> None:
    async with upstream(Reply()) as a, upstream(Reply()) as b:
        text = CONFIG.format(a=a.base_url, b=b.base_url)
        async with service_view(tmp_path, text) as there:
            for name, asked, model in (
                ("openai/gpt-5", a, "gpt-5"),
                ("openai/org/x", a, "org/x"),
                ("openai/o-3", b, "models/3/latest"),
                ("openai/exact", b, "other"),
            ):
                status, headers, answer = await there.ask("/gateway/v1", name)
                assert (status, answer["model"]) == (200, name)
                assert asked.requests[-1].body["model"] == model
                assert "x-request-changes" not in headers
            for name in ("openai/", "openai", "other/gpt-5"):
                assert (await there.ask("/gateway/v1", name))[0] == 404
            assert (await there.ask("/narrow/v1", "openai/o-3"))[0] == 200
            assert (await there.ask("/narrow/v1", "openai/gpt-5"))[0] == 404
            listed = await there.models("/gateway/v1")
            assert listed == ["openai/*", "openai/o-*", "openai/exact"]
            status, entry = await there.get("/gateway/v1/models/openai/gpt-5")
            assert (status, entry["id"]) == (200, "openai/gpt-5")


LISTING = """
[[doors]]
name = "gateway"
kind = "gateway"
keys = "off"
[[providers]]
name = "a"
base_url = "{a}"
[[aliases]]
id = "a/*"
targets = [{{ provider = "a", model = "*" }}]
[[aliases]]
id = "a/models-*"
targets = [{{ provider = "a", model = "models/*/latest" }}]
[[aliases]]
id = "a/exact"
targets = [{{ provider = "a", model = "m-1" }}]
"""


async def test_models_that_the_provider_lists_are_shown(tmp_path: Path) -> None:
    names = ["m-2", "exact", "models-x", "models/3/latest", "has space", "m-2"]
    async with running(ScriptedProvider([], models=names)) as a:
        text = LISTING.format(a=a.base_url)
        async with service_view(tmp_path, text) as there:
            while "a/*" in (listed := await there.models("/gateway/v1")):
                pass  # until the first check has read the list
            assert listed == ["a/m-2", "a/models/3/latest", "a/models-3", "a/exact"]


@pytest.mark.parametrize(
    ("alias", "target"),
    [
        ("openai/*", 'provider = "a", model = "gpt-5"'),
        ("openai/*", 'provider = "a", model = "*/*"'),
        ("fast", 'provider = "a", model = "*"'),
    ],
)
def test_both_have_a_star_or_neither(tmp_path: Path, alias: str, target: str) -> None:
    file = tmp_path / "causerie.toml"
    file.write_text(
        '[[providers]]\nname = "a"\nbase_url = "http://a/v1"\n'
        f'[[aliases]]\nid = "{alias}"\ntargets = [{{ {target} }}]\n'
    )
    with pytest.raises(SettingsError, match="needs a"):
        load(file=file, environ={})


PRICED = """
[store]
folder = "data"
journal = "off"
[[doors]]
name = "gateway"
kind = "gateway"
keys = "accounts"
[[providers]]
name = "a"
base_url = "{a}"
health = {{ path = "" }}
[[aliases]]
id = "openai/*"
price = {{ prompt = "1", completion = "2" }}
targets = [{{ provider = "a", model = "models/*" }}]
"""


async def test_the_model_that_was_asked_is_recorded_at_the_price_of_the_wildcard(
    tmp_path: Path,
) -> None:
    async with upstream(Reply()) as a, service_view(tmp_path, PRICED.format(a=a.base_url)) as there:
        async with office(tmp_path / "data") as opened:
            key = (await opened.key()).credential
            for name in ("openai/gpt-5", "openai/gpt-5-mini"):
                status, headers, answer = await there.ask("/gateway/v1", name, key=key)
                assert (status, answer["model"]) == (200, name)
                assert "x-served-model" not in headers, "it is the one that was asked"
                assert headers["x-served-by"] == f"a/{name.replace('openai', 'models')}"
            records = await opened.records()
        assert {(one.model, one.served_by) for one in records} == {
            ("openai/gpt-5", "a/models/gpt-5"),
            ("openai/gpt-5-mini", "a/models/gpt-5-mini"),
        }
        assert all(one.cost > 0 for one in records)
