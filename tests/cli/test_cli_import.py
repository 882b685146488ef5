"""``causerie import``: LiteLLM's configuration becomes one that holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from causerie.cli.keys import digest_line
from causerie.cli.root import app
from causerie.settings.load import load
from causerie.settings.tree import Settings

TEAM = """\
model_list:
  - model_name: chat
    litellm_params:
      model: azure/chat-eu
      api_base: https://team-eu.openai.azure.com/
      api_key: os.environ/AZURE_EU_KEY
      api_version: 2024-10-21
      rpm: 900
    model_info: {input_cost_per_token: 0.0000025, output_cost_per_token: 1e-5}
  - model_name: chat
    litellm_params: {model: openai/gpt-4o, api_key: os.environ/OPENAI_API_KEY, rpm: 100}
    model_info:
      input_cost_per_token: 0.0000025
      output_cost_per_token: 1e-5
      cache_creation_input_token_cost: 0.00000375
  - model_name: claude
    litellm_params:
      model: anthropic/claude-sonnet-4-5
      timeout: 300
      stream_timeout: 20
      temperature: 0.2
  - model_name: own
    litellm_params:
      model: hosted_vllm/Qwen/Qwen3-8B
      api_base: "http://10.0.0.5:8000/v1"
      max_retries: 3
      organization: org-1
    model_info: {input_cost_per_token: 2.5, output_cost_per_token: .nan}
  - model_name: small
    litellm_params: {model: ollama_chat/llama3.2, api_base: "http://10.0.0.6:11434"}
  - model_name: openai/*
    litellm_params: {model: openai/*, api_key: os.environ/OPENAI_API_KEY}
  - model_name: vectors
    litellm_params: {model: openai/text-embedding-3-small}
    model_info: {mode: embedding}
  - model_name: pictures
    litellm_params: {model: openai/gpt-image-1}
    model_info: {mode: image_generation}
  - model_name: aws
    litellm_params: {model: bedrock/anthropic.claude-v2}
router_settings:
  routing_strategy: simple-shuffle
  num_retries: 2
  cooldown_time: 30
  fallbacks: [{chat: [claude, small]}, {claude: [openai/*]}]
  model_group_alias: {gpt-4: chat, hidden: {model: own, hidden: true}}
litellm_settings:
  drop_params: false
  request_timeout: 120
  success_callback: [langfuse]
general_settings:
  master_key: os.environ/LITELLM_MASTER_KEY
  database_url: os.environ/DATABASE_URL
"""
VARIABLES = ("AZURE_EU_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY")


def run(tmp_path: Path, text: str, *more: str) -> Result:
    file = tmp_path / "config.yaml"
    file.write_text(text, encoding="utf-8")
    return CliRunner().invoke(app, ["import", "--litellm", str(file), *more])


def checked(tmp_path: Path, result: Result) -> Settings:
    """The settings that were printed, once ``causerie check`` has found them right."""
    assert result.exit_code == 0, result.stderr
    file = tmp_path / "causerie.toml"
    file.write_text(result.stdout, encoding="utf-8")
    check = CliRunner().invoke(app, ["check", "--config", str(file)])
    assert check.exit_code == 0, check.stderr
    return load(file=file, environ={}).settings


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Settings, str]:
    """What becomes of the configuration of a team, and what it is told."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("LITELLM_MASTER_KEY", "sk-master")
    result = run(tmp_path, TEAM)
    return checked(tmp_path, result), result.stderr


def test_providers(team: tuple[Settings, str]) -> None:
    settings, _ = team
    found = {
        one.name: (one.base_url, one.dialect, one.key.env if one.key else None)
        for one in settings.providers
    }
    assert found == {
        "azure": (
            "https://team-eu.openai.azure.com/openai",
            "azure-deployments",
            "AZURE_EU_KEY",
        ),
        "openai": ("https://api.openai.com/v1", "openai", "OPENAI_API_KEY"),
        "anthropic": ("https://api.anthropic.com/v1", "anthropic", "ANTHROPIC_API_KEY"),
        "vllm": ("http://10.0.0.5:8000/v1", "vllm", None),
        "ollama": ("http://10.0.0.6:11434/v1", "ollama", None),
    }
    by_name = {one.name: one for one in settings.providers}
    assert by_name["azure"].api_version == "2024-10-21"  # which YAML reads as a date
    waits = by_name["anthropic"].timeouts
    assert (waits.total, waits.first_token) == (300, 20)
    assert by_name["openai"].timeouts.total == 120


def test_entries_of_one_name_and_fallbacks_are_targets(team: tuple[Settings, str]) -> None:
    settings, words = team
    aliases = {one.id: one for one in settings.aliases}
    chat_targets = aliases["chat"].targets
    chat = [(one.name, one.priority, one.weight) for one in chat_targets]
    assert chat == [
        ("azure/chat-eu", 0, 900),
        ("openai/gpt-4o", 0, 100),
        ("anthropic/claude-sonnet-4-5", 1, 1),
        ("ollama/llama3.2", 2, 1),
    ]
    assert aliases["chat"].limits.requests_per_minute == 1000
    assert aliases["chat"].price is None  # the fallbacks have other prices
    prices = [one.price and (one.price.prompt, one.price.completion) for one in chat_targets]
    assert prices == [("2.5", "10"), ("2.5", "10"), None, None]
    assert chat_targets[1].price is not None
    assert chat_targets[1].price.cache_write == "3.75"
    assert aliases["gpt-4"].targets == aliases["chat"].targets[:4]
    assert "`input_cost_per_token` of `own` is not from 0 to 2; left out" in words
    assert aliases["hidden"].targets == aliases["own"].targets
    assert [one.name for one in aliases["openai/*"].targets] == ["openai/*"]
    assert not {"pictures", "aws"} & aliases.keys()
    [vectors] = aliases["vectors"].targets
    [described] = next(one for one in settings.providers if one.name == vectors.provider).models
    assert (described.id, described.operations) == (vectors.model, ("embeddings",))


def test_the_master_key_still_opens_the_door(team: tuple[Settings, str]) -> None:
    settings, _ = team
    assert settings.server.keys == (digest_line("sk-master"),)
    assert settings.server.port == 4000
    assert [one.unknown_params for one in settings.doors] == ["reject"]


@pytest.mark.parametrize(
    "line",
    [
        "model_list[2].litellm_params.temperature: a model has no defaults of requests here",
        "model_list[3].litellm_params.max_retries: a target is asked again `retries` times",
        "model_list[3].litellm_params.organization: no header",
        "router_settings.model_group_alias.gpt-4: has limits of its own here",
        "model_list[7].litellm_params: mode `image_generation`",
        'model_list[8].litellm_params: "bedrock" is no provider',
        "router_settings.num_retries: another target is asked at once",
        "router_settings.fallbacks.claude: `openai/*` is left out",
        "litellm_settings.success_callback: ",
        "general_settings.database_url: people and keys are made anew",
        "model_list: models without costs have list prices here",
    ],
)
def test_what_is_left_is_named_with_its_place(team: tuple[Settings, str], line: str) -> None:
    assert line in team[1]


def test_keys_in_the_file_are_never_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
model_list:
  - {model_name: a, litellm_params: {model: gpt-4o, api_key: sk-first}}
  - {model_name: a, litellm_params: {model: gpt-4o, api_key: sk-second}}
general_settings: {master_key: sk-1234}
"""
    monkeypatch.setenv("OPENAI_API_KEY", "one")
    monkeypatch.setenv("OPENAI_API_KEY_2", "two")
    result = run(tmp_path, text)
    settings = checked(tmp_path, result)
    assert not any(key in result.output for key in ("sk-first", "sk-second", "sk-1234"))
    assert [one.key.env for one in settings.providers if one.key] == [
        "OPENAI_API_KEY",
        "OPENAI_API_KEY_2",
    ]
    assert "model_list[1].litellm_params.api_key: a key never stands in the file" in result.stderr
    assert settings.server.keys == (digest_line("sk-1234"),)


def test_a_master_key_that_is_not_set_here_leaves_the_service_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LITELLM_MASTER_KEY", raising=False)
    text = """
model_list:
  - {model_name: a, litellm_params: {model: openai/x, api_base: "http://10.0.0.5/v1/"}}
general_settings: {master_key: os.environ/LITELLM_MASTER_KEY}
"""
    result = run(tmp_path, text)
    settings = checked(tmp_path, result)
    assert settings.server.keys is None
    assert settings.server.host == "127.0.0.1"
    assert settings.providers[0].base_url == "http://10.0.0.5/v1"
    assert "causerie key --digest" in result.stderr


@pytest.mark.parametrize(
    ("text", "words", "code"),
    [
        ("a: [", "is no YAML", 3),
        ("- a", "holds no settings", 3),
        ("model_list: [{model_name: a}, 3, {model_name: '*', litellm_params: {}}]", "nothing", 3),
        ("model_list: [{model_name: a, litellm_params: {model: 'x y'}}]", "nothing", 3),
        ("model_list: [{model_name: a, litellm_params: {model: openai/*}}]", "or neither", 3),
    ],
)
def test_a_file_that_gives_nothing_is_refused(
    tmp_path: Path, text: str, words: str, code: int
) -> None:
    result = run(tmp_path, text)
    assert result.exit_code == code
    assert words in result.stderr
    assert not result.stdout


def test_a_file_that_exists_stays(tmp_path: Path) -> None:
    out = tmp_path / "out.toml"
    text = "model_list: [{model_name: a, litellm_params: {model: ollama/x}}]"
    assert run(tmp_path, text, "-o", str(out)).exit_code == 0
    written = out.read_text(encoding="utf-8")
    assert 'known = "ollama"' in written
    assert run(tmp_path, text, "-o", str(out)).exit_code == 2
    assert out.read_text(encoding="utf-8") == written
