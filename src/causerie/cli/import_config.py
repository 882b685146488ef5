"""``causerie import``: entries into the database, or another program's configuration as a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer
import yaml

from causerie.cli.exits import CommandFailed, ExitCode
from causerie.cli.key import digest_line
from causerie.cli.litellm_config import Alias, Imported, ImportedTarget, imported
from causerie.cli.litellm_providers import Upstream
from causerie.settings.environment import variables
from causerie.settings.toml import as_toml

_LITELLM_PORT = 4000


def import_litellm(source: Path, output: Path | None) -> None:
    """Write what LiteLLM's configuration has in common. Raises :class:`CommandFailed`."""
    result = imported(_document(source), variables())
    if not result.aliases:
        _tell(result)
        raise CommandFailed(
            f"{source}: nothing in `model_list` can be carried over", ExitCode.CONFIGURATION
        )
    text = "\n".join(toml(result)) + "\n"
    if output is None:
        typer.echo(text, nl=False)
    else:
        write(output, text)
    _tell(result)


def _tell(result: Imported) -> None:
    for place, words in result.notes:
        typer.echo(f"{place}: {words}", err=True)


def _document(path: Path) -> Mapping[str, Any]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}", ExitCode.USAGE) from error
    except UnicodeDecodeError as error:
        raise CommandFailed(f"cannot read {path}: {error}", ExitCode.USAGE) from error
    except yaml.YAMLError as error:
        where = " ".join(str(error).split())
        raise CommandFailed(f"{path} is no YAML: {where}", ExitCode.CONFIGURATION) from error
    if not isinstance(found, dict):
        raise CommandFailed(f"{path} holds no settings", ExitCode.CONFIGURATION)
    return found


def write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise CommandFailed(f"cannot write {path}: {error}", ExitCode.USAGE) from error


def toml(result: Imported) -> Iterator[str]:
    """Write the configuration, line by line."""
    yield "# Made by `causerie import --litellm`. Check it: `causerie check`."
    yield ""
    yield "[server]"
    yield f"port = {_LITELLM_PORT}  # LiteLLM's own, so that clients find it"
    if result.master_key:
        yield f"keys = [{as_toml(digest_line(result.master_key))}]  # the master key, as a digest"
    else:
        yield "# keys = []  # digests that `causerie key` prints; needed beyond this machine"
    if result.unknown_params is not None:
        yield ""
        yield "[[doors]]"
        yield 'name = "gateway"'
        yield 'kind = "gateway"'
        yield f"unknown_params = {as_toml(result.unknown_params)}  # litellm_settings.drop_params"
    for name, provider in result.providers.items():
        yield from _provider(name, provider, result.variable(provider))
    for alias in result.aliases.values():
        yield from _alias(alias)


def _provider(name: str, provider: Upstream, variable: str | None) -> Iterator[str]:
    yield ""
    yield "[[providers]]"
    yield f"name = {as_toml(name)}"
    for setting in ("known", "base_url", "dialect", "api_version"):
        value = getattr(provider, setting)
        if value is not None:
            yield f"{setting} = {as_toml(value)}"
    if variable is not None:
        yield f"key = {{ env = {as_toml(variable)} }}"
    waits = [("total", provider.total), ("first_token", provider.first_token)]
    if any(value is not None for _, value in waits):
        pairs = (f"{setting} = {value}" for setting, value in waits if value is not None)
        yield f"timeouts = {{ {', '.join(pairs)} }}"


def _alias(alias: Alias) -> Iterator[str]:
    yield ""
    yield "[[aliases]]"
    yield f"id = {as_toml(alias.id)}"
    yield "targets = ["
    for target in alias.targets:
        yield f"  {{ {', '.join(_target(alias, target))} }},"
    yield "]"
    limits = {"requests_per_minute": alias.limit("rpm"), "tokens_per_minute": alias.limit("tpm")}
    pairs = [f"{name} = {value}" for name, value in limits.items() if value is not None]
    if pairs:
        yield f"limits = {{ {', '.join(pairs)} }}"
    if alias.price:
        prices = (f"{name} = {as_toml(value)}" for name, value in alias.price.items())
        yield f"price = {{ {', '.join(prices)} }}  # for a million tokens"


def _target(alias: Alias, target: ImportedTarget) -> Iterator[str]:
    yield f"provider = {as_toml(target.provider)}"
    yield f"model = {as_toml(target.model)}"
    if target.priority:
        yield f"priority = {target.priority}"
    weight = alias.weight(target)
    if weight is not None:
        yield f"weight = {weight}"
