"""Secrets that the configuration names, read where they are found: variable, file or command.

Read at the start and at each reload, never written anywhere. Errors are reported without a word
of the secret.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from causerie.http.addresses import Address
from causerie.observe.alerts import secret_bytes
from causerie.settings import environment
from causerie.settings.load import Loaded
from causerie.settings.problems import Findings, Problem, SettingsError, dotted
from causerie.settings.toml import KeyPath
from causerie.settings.values import Secret

_COMMAND_SECONDS = 20.0
_MOST_BYTES = 64 * 1024
_SHORTEST_KEY = 32
_BY_SECTION = (
    "store",
    "models",
    "alerts",
)  # other secrets are told apart by the names of their settings


@dataclass(frozen=True, slots=True)
class Credentials:
    """Secrets that the settings name, read."""

    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of providers, by their names."""
    proxies: Mapping[str, str] = field(default_factory=dict, repr=False)
    clients: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of identity providers, by their names."""
    store: tuple[str, ...] = field(default=(), repr=False)
    """Keys of the database, in their order."""
    models: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Keys of servers that others run, by the ids of our models."""
    mail: str | None = field(default=None, repr=False)
    """Password of the mail server."""
    alerts: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Secrets of webhooks, by their names."""


NO_CREDENTIALS = Credentials()


def read_credentials(
    loaded: Loaded, environ: Mapping[str, str] | None = None, *, commands: bool = True
) -> Credentials:
    """Every secret that the settings name. Blocks, for commands up to 20 s each.

    Without ``commands`` those are left out. Raises :class:`SettingsError` with
    all that cannot be had.
    """
    environ = environment.variables() if environ is None else environ
    kinds = ("key", "proxy", "client_secret", "password", *_BY_SECTION)
    found: dict[str, dict[str, str]] = {kind: {} for kind in kinds}
    findings = Findings()
    for path, name, secret in (*_secrets(loaded), *_store_keys(loaded), *_webhooks(loaded)):
        if secret == Secret() or (secret.command is not None and not commands):
            continue  # that none names no place is a problem of the settings
        kind = str(path[0] if path[0] in _BY_SECTION else path[-1])
        with findings.collecting():
            found[kind][name] = _read(loaded, path, secret, environ)
    findings.end()
    return Credentials(
        found["key"],
        found["proxy"],
        found["client_secret"],
        tuple(found["store"].values()),
        found["models"],
        found["password"].get("mail"),
        found["alerts"],
    )


def read_store_keys(loaded: Loaded, environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the keys of the database alone: other secrets may be known to the service only.

    Blocks. Raises :class:`SettingsError`.
    """
    environ = environment.variables() if environ is None else environ
    findings, values = Findings(), []
    for path, _, secret in _store_keys(loaded):
        with findings.collecting():
            values.append(_read(loaded, path, secret, environ))
    findings.end()
    return tuple(values)


def secret_value(secret: Secret, environ: Mapping[str, str]) -> str:
    """The secret itself; raises :class:`ValueError`, which does not hold it."""
    if secret.env is not None:
        where, value = f"the variable {secret.env}", environ.get(secret.env, "")
        if not value:
            raise ValueError(f"{where} is not set; set it for the service")
    elif secret.file is not None:
        where, value = f"the file {secret.file}", _of_file(Path(secret.file))
    else:
        program = (secret.command or ("",))[0]
        where, value = f"the command {program}", _of_command(secret.command or ())
    return one_word(value, f"{where} gives")


def one_word(value: str, gives: str) -> str:
    """Return a secret without white space around it; raise :class:`ValueError`, without it."""
    value = value.strip()
    if not value:
        raise ValueError(f"{gives} nothing; it takes one line")
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError(f"{gives} more than one word in ASCII; it takes the secret alone")
    return value


def _read(loaded: Loaded, path: KeyPath, secret: Secret, environ: Mapping[str, str]) -> str:
    """Return one secret; raise :class:`SettingsError` where it cannot be had."""
    try:
        value = secret_value(secret, environ)
        _check(path, value)
    except ValueError as error:
        raise SettingsError([Problem(loaded.where(path), dotted(path), str(error))]) from error
    return value


def _secrets(loaded: Loaded) -> Iterator[tuple[KeyPath, str, Secret]]:
    for index, provider in enumerate(loaded.settings.providers):
        if provider.key is not None:
            yield ("providers", index, "key"), provider.name, provider.key
        if isinstance(provider.proxy, Secret):
            yield ("providers", index, "proxy"), provider.name, provider.proxy
    for index, model in enumerate(loaded.settings.models):
        if model.vllm.key is not None:
            yield ("models", index, "vllm", "key"), model.id, model.vllm.key
    if loaded.settings.mail.password is not None:
        yield ("mail", "password"), "mail", loaded.settings.mail.password
    for index, identity_provider in enumerate(loaded.settings.identity_providers):
        if identity_provider.client_secret is not None:
            yield (
                ("identity_providers", index, "client_secret"),
                identity_provider.name,
                identity_provider.client_secret,
            )


def _check(path: KeyPath, value: str) -> None:
    """Raises :class:`ValueError` for a secret that cannot be what it is for."""
    if path[-1] == "proxy":
        Address.parse(value)
    if path[0] == "alerts":
        secret_bytes(value)
    if path[0] == "store" and len(value) < _SHORTEST_KEY:
        raise ValueError(f"is too short to be a key; it takes {_SHORTEST_KEY} characters or more")


def _store_keys(loaded: Loaded) -> Iterator[tuple[KeyPath, str, Secret]]:
    for index, secret in enumerate(loaded.settings.store.secret_keys):
        yield ("store", "secret_keys", index), str(index), secret


def _webhooks(loaded: Loaded) -> Iterator[tuple[KeyPath, str, Secret]]:
    for index, webhook in enumerate(loaded.settings.alerts.webhooks):
        if webhook.secret is not None:
            yield ("alerts", "webhooks", index, "secret"), webhook.name, webhook.secret


def _of_file(file: Path) -> str:
    try:
        with file.open("rb") as source:
            return source.read(_MOST_BYTES).decode()
    except OSError as error:
        raise ValueError(f"the file {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ValueError(f"the file {file} is not text") from None


def _of_command(command: tuple[str, ...]) -> str:
    """Return the output of the command; its stderr is not shown, for it may hold the secret."""
    try:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
        output = ended.stdout[:_MOST_BYTES].decode()
    except OSError as error:
        raise ValueError(f"the command {command[0]} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise ValueError(
            f"the command {command[0]} has not ended after {_COMMAND_SECONDS:g} s"
        ) from None
    except UnicodeDecodeError:
        raise ValueError(f"the command {command[0]} does not print text") from None
    if ended.returncode != 0:
        raise ValueError(f"the command {command[0]} ended with code {ended.returncode}")
    return output
