"""Reads the secrets that the settings name from variables, files and commands.

Read at the start and at each reload, and keys of providers that change in between; never written
anywhere. Errors are reported without a word of the secret.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import IO

from causerie.engines.child_environment import engine_environment
from causerie.http.addresses import Address
from causerie.observe.alerts import secret_bytes
from causerie.settings import environment
from causerie.settings.load import Loaded
from causerie.settings.problems import Findings, Problem, SettingsError, dotted
from causerie.settings.toml import KeyPath
from causerie.settings.values import Secret, secrets

_COMMAND_SECONDS = 20.0
_MOST_BYTES = 64 * 1024
_SHORTEST_KEY = 32


@dataclass(frozen=True, slots=True)
class Credentials:
    """The values of the secrets that the settings name."""

    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Keys of providers, by their names."""
    proxies: Mapping[str, str] = field(default_factory=dict, repr=False)
    clients: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Secrets of identity providers, by their names."""
    store: tuple[str, ...] = field(default=(), repr=False)
    """Keys of the database, in their order."""
    models: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Keys of servers that others run, by the ids of our models."""
    mail: str | None = field(default=None, repr=False)
    """Password of the mail server."""
    payments: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Key and webhook secret of Stripe, by their paths."""
    alerts: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Secrets of webhooks, by their names."""


NO_CREDENTIALS = Credentials()


def read_credentials(
    loaded: Loaded,
    environ: Mapping[str, str] | None = None,
    *,
    commands: bool = True,
    section: str | None = None,
) -> Credentials:
    """Return the values of all secrets in the settings; each command may block for 20 s.

    Without ``commands`` those are left out. With a ``section`` only its secrets are read: others
    may be known to the service only. Raises :class:`SettingsError` with all that cannot be had.
    """
    environ = environment.variables() if environ is None else environ
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    findings = Findings()
    for path, owner, secret in secrets(loaded.settings):
        if section not in (None, path[0]) or (secret.command is not None and not commands):
            continue
        if secret == Secret():
            continue  # that none names no place is a problem of the settings
        kind = str(path[-1] if path[0] == "providers" else path[0])
        with findings.collecting():
            found[kind][owner or dotted(path)] = _read_secret_value(loaded, path, secret, environ)
    findings.end()
    return Credentials(
        keys=found["key"],
        proxies=found["proxy"],
        clients=found["identity_providers"],
        store=tuple(found["store"].values()),
        models=found["models"],
        mail=found["mail"].get("mail.password"),
        payments=found["payments"],
        alerts=found["alerts"],
    )


def secret_value(secret: Secret, environ: Mapping[str, str]) -> str:
    """Read a secret's value from its place; raise :class:`ValueError` that does not contain it."""
    if secret.env is not None:
        where, value = f"the variable {secret.env}", environ.get(secret.env, "")
        if not value:
            raise ValueError(f"{where} is not set; set it for the service")
    elif secret.file is not None:
        where = f"the file {secret.file}"
        try:
            with Path(secret.file).open("rb") as source:
                value = source.read(_MOST_BYTES).decode()
        except OSError as error:
            raise ValueError(f"{where} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError:
            raise ValueError(f"{where} is not text") from None
    else:
        program = (secret.command or ("",))[0]
        where, value = f"the command {program}", _run_secret_command(secret)
    return one_word(value, f"{where} gives")


def one_word(value: str, gives: str) -> str:
    """Return ``value`` stripped; raise ``ValueError`` unless it is one word of ASCII."""
    value = value.strip()
    if not value:
        raise ValueError(f"{gives} nothing; it takes one line")
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError(f"{gives} more than one word in ASCII; it takes the secret alone")
    return value


def _read_secret_value(
    loaded: Loaded, path: KeyPath, secret: Secret, environ: Mapping[str, str]
) -> str:
    try:
        value = secret_value(secret, environ)
        if path[-1] == "proxy":
            Address.parse(value)
        if path[0] == "alerts":
            secret_bytes(value)
        if path[0] == "store" and len(value) < _SHORTEST_KEY:
            words = f"is too short to be a key; it takes {_SHORTEST_KEY} characters or more"
            raise ValueError(words)
    except ValueError as error:
        raise SettingsError([Problem(loaded.where(path), dotted(path), str(error))]) from error
    return value


def _run_secret_command(secret: Secret) -> str:
    # stderr is not shown, for it may hold the secret.
    command, end = secret.command or (), monotonic() + _COMMAND_SECONDS
    try:
        started = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=engine_environment(secret.environment),
            start_new_session=True,
        )
    except OSError as error:
        raise ValueError(f"the command {command[0]} cannot be run: {error.strerror}") from error
    with started:
        try:
            assert started.stdout is not None
            output = _read_output_as_text(started.stdout, end)
            code = started.wait(max(end - monotonic(), 0))
        except subprocess.TimeoutExpired:
            words = f"has not ended after {_COMMAND_SECONDS:g} s"
            raise ValueError(f"the command {command[0]} {words}") from None
        except ValueError as error:
            raise ValueError(f"the command {command[0]} {error}") from None
        finally:
            if started.returncode is None:  # with the programs that it has started
                with suppress(ProcessLookupError):
                    os.killpg(started.pid, signal.SIGKILL)
    if code != 0:
        raise ValueError(f"the command {command[0]} ended with code {code}")
    return output


def _read_output_as_text(stdout: IO[bytes], deadline: float) -> str:
    output = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stdout, selectors.EVENT_READ)
        while len(output) <= _MOST_BYTES:
            if not selector.select(max(deadline - monotonic(), 0)):
                raise subprocess.TimeoutExpired((), _COMMAND_SECONDS)
            piece = os.read(stdout.fileno(), _MOST_BYTES)
            if not piece:
                break
            output += piece
    if len(output) > _MOST_BYTES:
        raise ValueError(f"prints more than {_MOST_BYTES // 1024} KiB")
    try:
        return output.decode()
    except UnicodeDecodeError:
        raise ValueError("does not print text") from None
