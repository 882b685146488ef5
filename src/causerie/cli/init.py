"""``causerie init``: write a first configuration, by three questions or by options."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar, get_args

import typer

from causerie.cli.cached import size_text
from causerie.cli.commands.init import Kind
from causerie.cli.exits import CommandFailed, ExitCode
from causerie.cli.names import library, ref_of
from causerie.cli.options import context_of
from causerie.cli.serve import id_of
from causerie.cli.starter import (
    EVERY_MODEL,
    RemoteModels,
    StarterModel,
    gateway_file,
    model_file,
    team_file,
)
from causerie.engines.weights.errors import BadReference
from causerie.providers.known import KNOWN_PROVIDERS, KnownProvider
from causerie.settings import load
from causerie.settings.load import FILE_NAME

_Value = TypeVar("_Value")
_DEFAULT_MODEL = "smollm2:135m"
_KINDS = """What do you want to set up?

  model    a model on this machine
  gateway  one base URL in front of a provider
  team     a gateway with accounts, keys, budgets and a console
"""


def write_configuration(
    config: Path,
    kind: Kind,
    model: str | None,
    provider: str | None,
    context: str | int | None,
    *,
    asks: bool,
) -> None:
    """Write the file of this kind, and print the commands that come next; ``asks`` for the rest."""
    if kind == "model":
        if provider is not None:
            raise CommandFailed("--provider is for a gateway or a team", ExitCode.USAGE)
        _write(config, model_file(_own(model, context, asks)))
        _tell(config, [f"causerie serve{_flag(config)}", "causerie chat"])
        return
    if context is not None:
        raise CommandFailed("--context is for --kind model", ExitCode.USAGE)
    remote = _remote(provider, model, asks)
    _write(config, team_file(remote) if kind == "team" else gateway_file(remote))
    _tell(config, _remote_commands(config, remote))


def _may_write(file: Path, force: bool) -> None:
    if file.exists() and not force:
        raise CommandFailed(f"{file} exists; --force replaces it")


def _chosen_kind() -> Kind:
    if not sys.stdin.isatty():
        raise CommandFailed(
            "there is no terminal to ask at; give --kind model, --kind gateway --provider NAME "
            "or --kind team --provider NAME",
            ExitCode.USAGE,
        )
    typer.echo(_KINDS, err=True)
    return _ask("Kind", "model", _kind)


def _own(name: str | None, context: str | int | None, asks: bool) -> StarterModel:
    if name is None and asks:
        typer.echo("\nA name of `causerie list --library`, hf:org/repo, or a path.\n", err=True)
        name = _ask("Model", _DEFAULT_MODEL, _model_name)
    reference = library().reference(name or _DEFAULT_MODEL)
    if context is None and asks:
        context = _ask("Tokens of context of one request", "auto", context_of)
    known = library().of(reference)
    facts = f"{known.name}: {size_text(known.size)}, {known.license}" if known else ""
    return StarterModel(id_of(reference), ref_of(reference), facts, context or "auto")


def _remote(provider: str | None, model: str | None, asks: bool) -> RemoteModels:
    if provider is None and not asks:
        raise CommandFailed(f"--provider is missing; known are {_names()}", ExitCode.USAGE)
    if provider is None:
        typer.echo(f"\nKnown providers: {_names()}\n", err=True)
        known = _ask("Provider", "openai", _provider)
    else:
        try:
            known = _provider(provider)
        except typer.BadParameter as error:
            raise CommandFailed(error.message, ExitCode.USAGE) from error
    if model is None and asks:
        model = _ask("One of its models, or * for all", EVERY_MODEL, str.strip)
    return RemoteModels(known, model or EVERY_MODEL)


def _kind(text: str) -> Kind:
    for kind in get_args(Kind):
        if text.strip().lower() == kind:
            return kind  # type: ignore[no-any-return]  # a literal of the type
    raise typer.BadParameter(f"{text!r} is none of {', '.join(get_args(Kind))}")


def _model_name(text: str) -> str:
    try:
        library().reference(text)
    except BadReference as error:
        raise typer.BadParameter(str(error)) from error
    return text


def _provider(text: str) -> KnownProvider:
    name = text.strip().lower()
    if name in KNOWN_PROVIDERS:
        return KNOWN_PROVIDERS[name]
    near = difflib.get_close_matches(name, KNOWN_PROVIDERS, n=1)
    meant = f"did you mean {near[0]}?" if near else f"known are {_names()}"
    raise typer.BadParameter(f"{text!r} is no known provider; {meant}")


def _names() -> str:
    return ", ".join(KNOWN_PROVIDERS)


def _ask(text: str, default: str, read: Callable[[str], _Value]) -> _Value:
    """Ask until the answer can be read."""
    answer: _Value = typer.prompt(text, default=default, value_proc=read, err=True)
    return answer


def _write(file: Path, text: str) -> None:
    _ = load(file=file, text=text)  # what is written holds
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"{file} cannot be written: {error.strerror or error}") from error


def _remote_commands(file: Path, remote: RemoteModels) -> Sequence[str]:
    flag = _flag(file)
    key = [f"export {remote.variable}=..."] if remote.variable else []
    return [*key, f"causerie check{flag}", f"causerie serve{flag}"]


def _flag(file: Path) -> str:
    return "" if file == Path(FILE_NAME) else f" --config {file}"


def _tell(file: Path, commands: Sequence[str]) -> None:
    typer.echo(f"Wrote {file}. Next:\n")
    for command in commands:
        typer.echo(f"  {command}")
