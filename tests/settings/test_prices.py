"""Prices of targets: set ones, list prices, tiers and caches; and the price list itself."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from causerie.catalog.model import Tariff, highest
from causerie.composition.account_frontend import model_prices
from causerie.composition.catalog import target_tariffs
from causerie.protocol.events import Usage
from causerie.protocol.money import amount_of
from causerie.providers.price_list import (
    COLUMNS,
    WrongList,
    parsed_list,
    provider_at,
    shipped_list,
)
from causerie.settings.load import load
from causerie.settings.prices import Prices, without_price
from causerie.settings.problems import SettingsError
from causerie.settings.rules import notes
from causerie.settings.tree import Settings

M = 1_000_000
HEAD = ",".join(COLUMNS)


def dollars(tariff: Tariff, prompt: int, completion: int = 0, **parts: int) -> Decimal:
    return amount_of(tariff.charge(Usage(prompt, completion, **parts)))


def most(tariff: Tariff, prompt: int, completion: int = 0) -> Decimal:
    return amount_of(tariff.most(prompt, completion))


def settings_of(folder: Path, text: str) -> Settings:
    file = folder / "causerie.toml"
    file.write_text(f'[server]\nkeys = "accounts"\n[store]\nfolder = "{folder}/data"\n{text}')
    return load(file=file, environ={}).settings


OPENAI = '[[providers]]\nname = "ours"\nbase_url = "https://api.openai.com/v1"\n'
ALIAS = '[[aliases]]\nid = "{id}"\ntargets = [{{ provider = "ours", model = "{model}" }}]\n'


def test_each_class_of_tokens_has_its_price() -> None:
    tariff = Tariff(Decimal(3), Decimal(15), Decimal("0.3"), written=Decimal("3.75"))
    assert (
        dollars(tariff, 100, 10, cached=50, written=20)
        == 30 * 3 + 15 + 20 * Decimal("3.75") + 10 * 15
    )
    assert most(tariff, 100, 10) == 100 * Decimal("3.75") + 150  # all of it may be written
    assert dollars(Tariff(Decimal(3)), 100, written=20) == 300  # without a price of their own


def test_a_long_prompt_has_the_prices_of_its_tier() -> None:
    long = Tariff(Decimal(6), Decimal(22))
    tariff = Tariff(Decimal(3), Decimal(15), tiers=((200, long),))
    assert dollars(tariff, 200, 1) == 615
    assert dollars(tariff, 201, 1) == 201 * 6 + 22
    assert most(tariff, 201, 1) == 201 * 6 + 22
    both = highest([tariff, Tariff(Decimal(4), Decimal(10))])
    assert most(both, 200, 1) == 815
    assert most(both, 201, 1) == 201 * 6 + 22
    assert tariff.entry().tiers[0].above == 200


def test_the_list_that_comes_with_the_program() -> None:
    found = shipped_list()
    providers = {provider for provider, _ in found.models}
    assert providers == {
        *("openai", "anthropic", "gemini", "vertex", "bedrock", "mistral", "groq"),
        *("deepseek", "xai", "together", "fireworks"),
    }
    for rows in found.models.values():
        assert all(row.source.startswith("https://") and row.date.year >= 2025 for row in rows)
    [row] = found.of("openai", "gpt-4o-2024-08-06")
    assert (row.model, row.prices["prompt"], row.prices["cached"]) == ("gpt-4o", "2.5", "1.25")
    assert found.of("openai", "gpt-4o-2024-05-13")[0].prices["prompt"] == "5"
    assert found.of("gemini", "models/gemini-2.5-pro")[1].above == 200_000
    [own] = found.of("bedrock", "eu.anthropic.claude-haiku-4-5-20251001-v1:0")
    assert own.prices["prompt"] == "1.1"
    assert found.of("openai", "no-such-model") == found.of("nobody", "gpt-4o") == ()


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://bedrock-runtime.eu-central-1.amazonaws.com/openai/v1", "bedrock"),
        ("https://us-east5-aiplatform.googleapis.com/v1/projects/p", "vertex"),
        ("http://127.0.0.1:11434/v1", ""),
        ("https://api.openai.com.evil.example/v1", ""),
    ],
)
def test_whose_prices_an_address_has(url: str, name: str) -> None:
    assert provider_at(url) == name


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("openai,gpt,,1e30,2,,,https://a,2026-01-01", "line 2: an amount is at most"),
        ("openai,gpt,,one,2,,,https://a,2026-01-01", "line 2: it is no number"),
        ("openai,gpt,,1,2,,,https://a,soon", "line 2: Invalid isoformat"),
        ("openai,,,1,2,,,https://a,2026-01-01", "line 2: model is empty"),
        ("openai,gpt,x,1,2,,,https://a,2026-01-01", "line 2: above is x"),
        ("openai,gpt,9,1,2,,,https://a,2026-01-01", "needs one row without `above`"),
        ("openai,gpt", "line 2: prompt is empty"),
    ],
)
def test_what_is_wrong_with_a_list(row: str, words: str) -> None:
    with pytest.raises(WrongList, match=words):
        parsed_list(f"{HEAD}\n{row}\n")
    with pytest.raises(WrongList, match="no column provider"):
        parsed_list("model,prompt\n")
    with pytest.raises(WrongList, match="is longer than"):
        parsed_list("x" * 2_000_000)


def test_a_price_is_of_the_target_else_of_the_alias_else_of_the_list(tmp_path: Path) -> None:
    settings = settings_of(
        tmp_path,
        OPENAI
        + """
[[providers]]
name = "other"
base_url = "http://other.example/v1"
[[aliases]]
id = "chat"
price = { prompt = "1", completion = "2" }
targets = [
    { provider = "ours", model = "gpt-4o" },
    { provider = "other", model = "m", priority = 1, price = { prompt = "7", completion = "9" } },
]
[[aliases]]
id = "listed"
targets = [{ provider = "ours", model = "gpt-4o" }]
[[aliases]]
id = "nothing"
targets = [{ provider = "other", model = "gpt-4o" }]
[[aliases]]
id = "gift"
price = {}
targets = [{ provider = "ours", model = "gpt-4o" }]
[[aliases]]
id = "o/*"
targets = [{ provider = "ours", model = "*" }, { provider = "other", model = "*" }]
""",
    )
    prices = model_prices(settings)
    assert dollars(prices.of("chat", "ours/gpt-4o"), M, M) == 3
    assert dollars(prices.of("chat", "other/m"), M, M) == 16  # a failover costs what it costs
    assert most(prices.dearest("chat", "chat"), M, M) == 16
    assert dollars(prices.of("listed", "ours/gpt-4o"), M, M) == Decimal("12.5")
    assert prices.of("nothing", "other/gpt-4o").free
    assert prices.of("gift", "ours/gpt-4o").free
    assert dollars(prices.of("o/*", "ours/gpt-4o-mini", "o/gpt-4o-mini"), M) == Decimal("0.15")
    assert prices.of("o/*", "other/gpt-4o-mini", "o/gpt-4o-mini").free
    assert most(prices.dearest("o/*", "o/o1"), M, 0) == 15
    listed = target_tariffs(Prices(settings), settings.aliases[1])
    assert listed.listed
    assert most(listed.dearest, M) == Decimal("2.5")
    assert without_price(settings) == ["nothing", "o/*"]
    [words] = [note for note in notes(settings) if "No price" in note]
    assert "the models nothing, o/* of providers" in words


def test_list_prices_can_be_another_providers_or_off(tmp_path: Path) -> None:
    alias = ALIAS.format(id="a", model="gpt-4o")
    azure = '[[providers]]\nname = "ours"\nbase_url = "https://x.openai.azure.com/openai/v1"\n'
    assert without_price(settings_of(tmp_path, azure + alias)) == ["a"]
    named = azure + 'price_list = "openai"\n' + alias
    assert without_price(settings_of(tmp_path, named)) == []
    for off in (
        OPENAI + 'price_list = ""\n' + alias,
        f"{OPENAI}{alias}[list_prices]\nenabled = false",
    ):
        assert without_price(settings_of(tmp_path, off)) == ["a"]


def test_of_two_rows_for_a_model_the_newer_applies(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, OPENAI + ALIAS.format(id="a", model="gpt-4o"))
    (tmp_path / "data").mkdir()
    file = tmp_path / "data" / "prices.csv"
    rows = "openai,gpt-4o,,{},9,,,https://a,{}\n"
    for day, price, applies in (("2020-01-01", "8", "2.5"), ("2030-01-01", "8", "8")):
        file.write_text(f"{HEAD}\n{rows.format(price, day)}")
        found = target_tariffs(Prices(settings), settings.aliases[0])
        assert most(found.dearest, M, 0) == Decimal(applies)
    file.write_text("nonsense")
    with pytest.raises(SettingsError, match=r"list_prices\.file.*prices\.csv.*no column provider"):
        settings_of(tmp_path, OPENAI)


def test_a_named_list_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there is no file"):
        settings_of(tmp_path, '[list_prices]\nfile = "gone.csv"\n')
