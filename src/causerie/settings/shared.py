"""Settings of what replicas of the service share in addition to the database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct

from causerie.settings.certificates import wrong_certificates
from causerie.settings.lines import Path as KeyPath
from causerie.settings.problems import Broken
from causerie.settings.values import Text

_Address = Annotated[
    str,
    Meta(
        pattern=r"^(valkeys?|rediss?|unix)://\S+\Z",
        extra={"words": "an address like `valkey://HOST:6379/0`", "secret": True},
    ),
]


class SharedSettings(Struct, frozen=True, kw_only=True):
    """A Valkey or Redis server in which replicas count limits and budgets together."""

    url: Annotated[
        _Address | None,
        Meta(
            description="`valkey://[USER:PASSWORD@]HOST:PORT/NUMBER`, `valkeys://` over TLS; with "
            "a password better in the variable than in the file. Unset: each process counts for "
            "itself.",
            extra={"secret": True},
        ),
    ] = None
    ca_file: Annotated[
        Text | None,
        Meta(
            description="Certificates to trust (PEM) where the address begins with `valkeys://` or "
            "`rediss://`, in addition to those that the system trusts. The certificate must have "
            "the host "
            "of the address."
        ),
    ] = None
    away: Annotated[
        Literal["memory", "refuse"],
        Meta(
            description="While the server is away: `memory` counts in each process for itself, "
            "`refuse` lets nobody in who has limits or budgets (503)."
        ),
    ] = "memory"
    reply_seconds: Annotated[
        float,
        Meta(
            gt=0,
            le=10,
            description="Longest time for an answer of the server. After it the server counts as "
            "away, and a request that waited for it goes on as `away` says.",
        ),
    ] = 0.25
    prefix: Annotated[
        Text,
        Meta(description="What all keys begin with; services that differ in it share nothing."),
    ] = "causerie"

    def __repr__(self) -> str:
        return f"Shared(away={self.away!r}, prefix={self.prefix!r})"


def shared_rules(shared: SharedSettings) -> Iterator[Broken]:
    """Yield the errors in the certificates."""
    at: KeyPath = ("shared", "ca_file")
    if (wrong := wrong_certificates(shared.ca_file)) is not None:
        yield Broken(at, wrong)
    elif shared.ca_file is not None and not (shared.url or "").startswith(("valkeys:", "rediss:")):
        yield Broken(at, "means nothing unless `shared.url` begins with `valkeys://`")
