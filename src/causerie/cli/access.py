"""Access of a probe to a provider: key and dialect, from options or from the configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from causerie.cli.exits import CommandFailed, ExitCode
from causerie.composition.providers import reach
from causerie.providers.dialect import Dialect
from causerie.providers.dialects import DIALECTS
from causerie.settings import Loaded
from causerie.settings.credentials import secret_value
from causerie.settings.environment import CLIENT_KEY, variables
from causerie.settings.provider import ProviderSettings
from causerie.settings.values import Secret
from causerie.transport.client import Reach


@dataclass(frozen=True, slots=True)
class KeyOptions:
    """The options for a key, of which one may be given."""

    text: str | None = field(default=None, repr=False)
    env: str | None = None
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """Access to a provider. ``dialect`` is unset if nobody has named one, ``reach`` if the provider
    is not configured."""

    key: str | None = field(default=None, repr=False)
    dialect: Dialect | None = None
    reach: Reach | None = None


def access(
    base_url: str, loaded: Loaded, options: KeyOptions, dialect: str | None = None
) -> Access:
    """From the options, else from the provider of that address in the configuration, else from
    the variable that ``causerie chat`` reads. Raises :class:`CommandFailed`."""
    known = configured(loaded, base_url)
    if dialect is not None and dialect not in DIALECTS:
        names = ", ".join(DIALECTS)
        raise CommandFailed(f"no dialect is named {dialect}; known: {names}", ExitCode.USAGE)
    kind = dialect or (known.dialect if known is not None else None)
    reach = _reach(known) if known is not None else None
    return Access(_key(options, known), DIALECTS[kind] if kind is not None else None, reach)


def configured(loaded: Loaded, base_url: str) -> ProviderSettings | None:
    wanted = base_url.rstrip("/")
    providers = loaded.settings.providers
    return next((one for one in providers if one.base_url.rstrip("/") == wanted), None)


def _reach(known: ProviderSettings) -> Reach:
    """Certificates, proxy and patience of the provider that is configured."""
    try:
        found = known.proxy if isinstance(known.proxy, Secret) else None
        return reach(known, secret_value(found, variables()) if found is not None else None)
    except (OSError, ValueError) as error:
        raise CommandFailed(
            f"the provider {known.name} cannot be reached as configured: {error}",
            ExitCode.CONFIGURATION,
        ) from error


def _key(options: KeyOptions, known: ProviderSettings | None) -> str | None:
    given = [option for option in (options.text, options.env, options.file) if option is not None]
    if len(given) > 1:
        raise CommandFailed("give one of --key, --key-env and --key-file", ExitCode.USAGE)
    if options.text is not None:
        text = options.text
        if not text.isascii() or not text.isprintable() or not text or " " in text:
            raise CommandFailed("--key takes one word in ASCII", ExitCode.USAGE)
        return options.text
    environ = variables()
    if options.env is not None:
        place = Secret(env=options.env)
    elif options.file is not None:
        place = Secret(file=str(options.file.resolve()))
    elif known is not None and known.key is not None:
        place = known.key
    elif environ.get(CLIENT_KEY):
        place = Secret(env=CLIENT_KEY)
    else:
        return None
    try:
        return secret_value(place, environ)
    except ValueError as error:
        raise CommandFailed(f"no key: {error}", ExitCode.USAGE) from error
