"""Text of a first configuration: a model here, a gateway, or a gateway with accounts for a team.

Knows nothing of terminals and files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from causerie.providers.known import KnownProvider
from causerie.settings.toml import as_toml

EVERY_MODEL = "*"
_PORT = 8000
_REFERENCE = (
    "Every setting: docs/reference/configuration.md. `causerie check` shows those in force."
)


@dataclass(frozen=True, slots=True)
class StarterModel:
    """A model that runs on this machine; ``facts`` are for a comment."""

    id: str
    ref: str
    facts: str = ""
    context: int | str = "auto"


@dataclass(frozen=True, slots=True)
class RemoteModels:
    """Models of a provider: one, or :data:`EVERY_MODEL`."""

    provider: KnownProvider
    model: str = EVERY_MODEL

    @property
    def id(self) -> str:
        """The name that requests use."""
        every = self.model == EVERY_MODEL
        return f"{self.provider.name}/{EVERY_MODEL}" if every else self.model

    @property
    def variable(self) -> str | None:
        """The variable that holds the API key; ``None`` if the provider needs none."""
        name = self.provider.name.upper().replace("-", "_")
        return None if self.provider.local else f"{name}_API_KEY"

    @property
    def port(self) -> int:
        """A port for the service that is not the provider's own on this machine."""
        own = self.provider.local and f":{_PORT}/" in self.provider.base_url
        return _PORT + 1 if own else _PORT


def model_file(model: StarterModel) -> str:
    """Return the configuration for a model on this machine."""
    facts = f"  # {model.facts}" if model.facts else ""
    return _text(
        "# A model on this machine.",
        f"# {_REFERENCE}",
        "",
        *_server(_PORT),
        "",
        "[[models]]",
        f"id = {as_toml(model.id)}  # the name that requests use",
        f"ref = {as_toml(model.ref)}{facts}",
        "",
        "[models.llamacpp]",
        f"context = {as_toml(model.context)}  # tokens of prompt and output of one request;"
        ' "auto" takes what fits',
        "# parallel = 4  # requests at the same time",
    )


def gateway_file(remote: RemoteModels) -> str:
    """Return the configuration for a gateway in front of a provider."""
    return _text(
        f"# A gateway: one base URL in front of {remote.provider.title} and others.",
        f"# {_REFERENCE}",
        "",
        *_server(remote.port),
        "",
        *_provider(remote),
        "",
        *_alias(remote),
    )


def team_file(remote: RemoteModels) -> str:
    """Return the configuration for a gateway with accounts, keys, budgets and a console."""
    return _text(
        "# A gateway for a team: accounts, personal keys, budgets, and a console at /console.",
        f"# {_REFERENCE}",
        "",
        "[server]",
        f"port = {remote.port}",
        '# host = "0.0.0.0"  # let other machines in; read docs/guides/security.md before',
        'keys = "accounts"  # people create their keys in the console',
        "",
        "# Accounts and usage are in SQLite in ~/.local/share/causerie, unless there is a folder:",
        "# [store]",
        '# folder = "/var/lib/causerie"',
        "",
        *_provider(remote),
        "",
        *_alias(remote),
        '# price = { prompt = "0.50", completion = "1.50" }  # per 1M tokens; budgets count it',
    )


def _server(port: int) -> Sequence[str]:
    return (
        "[server]",
        f"port = {port}",
        '# host = "0.0.0.0"  # let other machines in; then keys are needed',
        "# keys = []  # digests that `causerie key` prints",
    )


def _provider(remote: RemoteModels) -> Sequence[str]:
    known = remote.provider
    lines = [
        "[[providers]]",
        f"known = {as_toml(known.name)}  # base URL and dialect; its documentation: {known.docs}",
    ]
    if remote.variable is None:
        lines.append(f"# base_url = {as_toml(known.base_url)}  # if it runs elsewhere")
    else:
        lines.append(f"key = {{ env = {as_toml(remote.variable)} }}  # read at the start")
    return lines


def _alias(remote: RemoteModels) -> Sequence[str]:
    what = "all of its models, by their names" if remote.model == EVERY_MODEL else "its model"
    target = f"provider = {as_toml(remote.provider.name)}, model = {as_toml(remote.model)}"
    return (
        "[[aliases]]",
        f"id = {as_toml(remote.id)}  # the name that requests use: {what}",
        "# More targets with a higher `priority` answer when the first does not.",
        f"targets = [{{ {target} }}]",
    )


def _text(*lines: str) -> str:
    return "\n".join(lines) + "\n"
