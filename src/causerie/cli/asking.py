"""Helpers of commands that query a provider: its models, and the reason for a failure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from causerie.cli.exits import CommandFailed, ExitCode
from causerie.cli.options import HERE
from causerie.cli.services import services
from causerie.errors import ServiceError
from causerie.providers.dialect import Dialect
from causerie.providers.dialects import GENERIC
from causerie.providers.provider import Deadlines, Provider
from causerie.settings.environment import CLIENT_KEY
from causerie.transport.client import HttpClient, Reach
from causerie.transport.errors import TransportFailed

_REACH = Reach(connect_seconds=10)
_VERSION = re.compile(r"/v\d\w*/?$", re.ASCII)


@contextmanager
def explained(base_url: str) -> Iterator[None]:
    """Failures of the provider as a sentence for the person who named it."""
    try:
        yield
    except ServiceError as error:
        if isinstance(error.__cause__, TransportFailed):
            raise CommandFailed(
                f"{base_url} cannot be reached: {error.__cause__}{_start(base_url)}",
                ExitCode.NETWORK,
            ) from error
        status = error.metadata.get("upstream_status")
        said = f" (status {status}{advice(status, base_url)})" if status is not None else ""
        raise CommandFailed(f"{error.message}{said}") from error


def provider_at(
    base_url: str,
    deadlines: Deadlines,
    key: str | None,
    dialect: Dialect = GENERIC,
    reach: Reach = _REACH,
) -> Provider:
    """A provider that a command asks itself; raises :class:`CommandFailed` for no address."""
    try:
        client = HttpClient(base_url, reach)
    except ValueError as error:
        raise CommandFailed(f"{base_url} is not an address: {error}", ExitCode.USAGE) from error
    provider = Provider("endpoint", client, dialect, credential=key, deadlines=deadlines)
    provider.candid = True
    return provider


async def first_model(provider: Provider, base_url: str) -> str:
    """The first model that the provider lists; raises :class:`CommandFailed`."""
    with explained(base_url):
        found = await provider.models()
    if not found:
        raise CommandFailed(f"{base_url} lists no models; name one with --model")
    return found[0]


def _start(base_url: str) -> str:
    """Return where a service is or how to start one, if the address is that of the default."""
    if base_url != HERE:
        return ""
    running = services()
    if running:
        return f"; a service runs at {running[0].base_url}"
    return "; start a service with `causerie serve`"


def advice(status: object, base_url: str) -> str:
    """Return advice on this failure."""
    if status == HTTPStatus.UNAUTHORIZED:
        return f", set {CLIENT_KEY}"
    if status == HTTPStatus.NOT_FOUND and not _VERSION.search(base_url):
        return f"; is the address {base_url.rstrip('/')}/v1?"
    return ""
