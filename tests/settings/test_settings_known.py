"""Known providers, named by one word."""

from __future__ import annotations

from pathlib import Path

import pytest

from causerie.http.addresses import Address
from causerie.providers.dialects import DIALECTS, KNOWN_PROVIDERS
from causerie.settings.load import load
from causerie.settings.problems import SettingsError
from causerie.settings.provider import ProviderSettings


def loaded(tmp_path: Path, text: str) -> tuple[ProviderSettings, ...]:
    file = tmp_path / "causerie.toml"
    file.write_text(text)
    return load(file=file, environ={}).settings.providers


@pytest.mark.parametrize("known", [name for name, one in KNOWN_PROVIDERS.items() if not one.own])
def test_one_word_is_enough(tmp_path: Path, known: str) -> None:
    [provider] = loaded(tmp_path, f'[[providers]]\nknown = "{known}"')
    told = KNOWN_PROVIDERS[known]
    assert (provider.name, provider.base_url, provider.dialect) == (
        known, told.base_url, told.dialect,
    )  # fmt: skip
    assert told.dialect in DIALECTS
    assert Address.parse(told.base_url).tls is not told.local
    assert told.docs.startswith("https://")


def test_an_address_of_a_project_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        loaded(tmp_path, '[[providers]]\nknown = "vertex"')
    [problem] = caught.value.problems
    assert problem.key == "providers[0].base_url"
    assert f'in place of PROJECT: "{KNOWN_PROVIDERS["vertex"].base_url}"' in problem.advice
    own = KNOWN_PROVIDERS["vertex"].base_url.replace("PROJECT", "mine")
    [provider] = loaded(tmp_path, f'[[providers]]\nknown = "vertex"\nbase_url = "{own}"')
    assert (provider.name, provider.base_url) == ("vertex", own)


def test_what_the_file_sets_goes_first(tmp_path: Path) -> None:
    text = '[[providers]]\nname = "eu"\nknown = "openai"\nbase_url = "https://eu.api.openai.com/v1"'
    [provider] = loaded(tmp_path, text + '\ndialect = "generic"')
    assert (provider.name, provider.base_url, provider.dialect) == (
        "eu", "https://eu.api.openai.com/v1", "generic",
    )  # fmt: skip


def test_an_unknown_one_is_told_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="did you mean `anthropic`"):
        loaded(tmp_path, '[[providers]]\nknown = "antropic"\nname = "a"\nbase_url = "http://a"')
