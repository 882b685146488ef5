"""``causerie init``: write a first configuration, by three questions or by options."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar, get_args

import typer

from causerie.cli.command import (
    CommandFailed,
    Context,
    WrongUsage,
    context_of,
    library,
    ref_of,
    size_text,
)

if TYPE_CHECKING:
    from causerie.providers.dialects import KnownProvider


Kind = Literal["model", "gateway", "team"]
_USUAL_FILE = Path("causerie.toml")


def init(
    kind: Annotated[
        Kind | None, typer.Option("--kind", help="What to set up; without it, you are asked.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", help="A short name or reference; of a provider, one of its models."
        ),
    ] = None,
    provider: Annotated[
        str | None, typer.Option("--provider", help="A known provider, like `openai`.")
    ] = None,
    context: Context = None,
    config: Annotated[Path, typer.Option("--config", "-c", help="File to write.")] = _USUAL_FILE,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
) -> None:
    """Write a first configuration, with comments.

    Asks three questions. With `--kind` it asks none: options that are absent
    have defaults, but a gateway and a team need `--provider`.

    **Examples**

    `causerie init`

    `causerie init --kind model --model qwen3:4b`

    `causerie init --kind team --provider openai`
    """
    if config.exists() and not force:
        raise CommandFailed(f"{config} exists; --force replaces it")
    asks = kind is None
    kind = kind or _ask_configuration_kind()
    if kind == "model" and provider is not None:
        raise WrongUsage("--provider is for a gateway or a team")
    if kind != "model" and context is not None:
        raise WrongUsage("--context is for --kind model")
    flag = "" if config == _USUAL_FILE else f" --config {config}"
    if kind == "model":
        text = _build_model_config(model, context, asks)
        commands = [f"causerie serve{flag}", "causerie chat"]
    else:
        known, model = _choose_provider_and_model(provider, model, asks)
        text, variable = _build_gateway_config_and_key_variable(kind, known, model)
        commands = [f"export {variable}=..."] if variable else []
        commands += [f"causerie check{flag}", f"causerie serve{flag}"]
    _check_and_overwrite_file(config, text, next_steps=commands)


_Value = TypeVar("_Value")
_DEFAULT_MODEL = "smollm2:135m"
_EVERY_MODEL = "*"
_PORT = 8000
_KINDS = """What do you want to set up?

  model    a model on this machine
  gateway  one base URL in front of a provider
  team     a gateway with accounts, keys, budgets and a console
"""


def _ask_configuration_kind() -> Kind:
    if not sys.stdin.isatty():
        raise WrongUsage(
            "there is no terminal to ask at; give --kind model, --kind gateway --provider NAME "
            "or --kind team --provider NAME"
        )
    typer.echo(_KINDS, err=True)
    return _ask_until_valid("Kind", "model", _parse_kind)


def _build_model_config(model: str | None, context: str | int | None, asks: bool) -> str:
    if model is None and asks:
        typer.echo("\nA name of `causerie list --library`, hf:org/repo, or a path.\n", err=True)
        model = _ask_until_valid("Model", _DEFAULT_MODEL, _check_model_name)
    reference = library().reference(model or _DEFAULT_MODEL)
    if context is None and asks:
        context = _ask_until_valid("Tokens of context of one request", "auto", context_of)
    known = library().of(reference)
    facts = f"  # {known.name}: {size_text(known.size)}, {known.license}" if known else ""
    return _render_config(
        *("model", _PORT),
        id=library().id_of(reference),
        ref=ref_of(reference),
        facts=facts,
        context=context or "auto",
    )


def _choose_provider_and_model(
    provider: str | None, model: str | None, asks: bool
) -> tuple[KnownProvider, str]:
    if provider is None and not asks:
        raise WrongUsage(f"--provider is missing; known are {_format_provider_names()}")
    if provider is None:
        typer.echo(f"\nKnown providers: {_format_provider_names()}\n", err=True)
        known = _ask_until_valid("Provider", "openai", _require_known_provider)
    else:
        try:
            known = _require_known_provider(provider)
        except typer.BadParameter as error:
            raise WrongUsage(error.message) from error
    if model is None and asks:
        model = _ask_until_valid("One of its models, or * for all", _EVERY_MODEL, str.strip)
    return known, model or _EVERY_MODEL


def _parse_kind(text: str) -> Kind:
    for kind in get_args(Kind):
        if text.strip().lower() == kind:
            return kind  # type: ignore[no-any-return]  # a literal of the type
    raise typer.BadParameter(f"{text!r} is none of {', '.join(get_args(Kind))}")


def _check_model_name(model_name: str) -> str:
    from causerie.engines.weights.errors import BadReference

    try:
        library().reference(model_name)
    except BadReference as error:
        raise typer.BadParameter(str(error)) from error
    return model_name


def _require_known_provider(typed_name: str) -> KnownProvider:
    from causerie.providers.dialects import KNOWN_PROVIDERS

    name = typed_name.strip().lower()
    if name in KNOWN_PROVIDERS:
        return KNOWN_PROVIDERS[name]
    near = difflib.get_close_matches(name, KNOWN_PROVIDERS, n=1)
    meant = f"did you mean {near[0]}?" if near else f"known are {_format_provider_names()}"
    raise typer.BadParameter(f"{typed_name!r} is no known provider; {meant}")


def _format_provider_names() -> str:
    from causerie.providers.dialects import KNOWN_PROVIDERS

    return ", ".join(KNOWN_PROVIDERS)


def _ask_until_valid(prompt: str, default: str, parse: Callable[[str], _Value]) -> _Value:
    answer: _Value = typer.prompt(prompt, default=default, value_proc=parse, err=True)
    return answer


def _check_and_overwrite_file(file: Path, configuration: str, next_steps: Sequence[str]) -> None:
    from causerie.settings.load import load

    _ = load(file=file, text=configuration)  # what is written holds
    try:
        file.write_text(configuration, encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"{file} cannot be written: {error.strerror or error}") from error
    typer.echo(f"Wrote {file}. Next:\n")
    for command in next_steps:
        typer.echo(f"  {command}")


def _build_gateway_config_and_key_variable(
    kind: Kind, provider: KnownProvider, model: str
) -> tuple[str, str | None]:
    variable = None if provider.local else f"{provider.name.upper().replace('-', '_')}_API_KEY"
    is_taken = provider.local and f":{_PORT}/" in provider.base_url  # by the provider's own server
    text = _render_config(
        *(kind, _PORT + 1 if is_taken else _PORT),
        provider=provider,
        model=model,
        id=f"{provider.name}/{model}" if model == _EVERY_MODEL else model,
        variable=variable,
    )
    return text, variable


def _render_config(kind: Kind, port: int, **values: object) -> str:
    from jinja2 import Environment, StrictUndefined

    from causerie.settings.toml import as_toml

    made = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    made.filters["toml"] = as_toml
    template = Path(__file__).with_name("init.toml.jinja").read_text("utf-8")
    return made.from_string(template).render(kind=kind, port=port, **values)
