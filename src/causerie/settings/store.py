"""Storage of people, keys and usage, and people's view of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct

from causerie.settings.lines import Path as KeyPath
from causerie.settings.problems import Broken
from causerie.settings.values import (
    PLACES,
    KeyPlace,
    Seconds,
    Text,
)

_Address = Annotated[
    str,
    Meta(
        pattern=r"^(sqlite:///(?!:memory:)|postgres(ql)?://)\S",
        extra={
            "words": "an address like `sqlite:///PATH` or `postgresql://HOST/NAME`",
            "secret": True,
        },
    ),
]


class StoreSettings(Struct, frozen=True, kw_only=True):
    """The database; in use as soon as a door takes keys of accounts."""

    url: Annotated[
        _Address | None,
        Meta(
            description="`sqlite:///PATH` or `postgresql://USER:PASSWORD@HOST/NAME`; with a "
            "password better in the variable than in the file. Unset: SQLite in `folder`.",
            extra={"secret": True},
        ),
    ] = None
    folder: Annotated[
        Text | None,
        Meta(
            description="Folder of this process for what must not be lost. Unset: `causerie` in "
            "`$XDG_DATA_HOME` or `~/.local/share`."
        ),
    ] = None
    journal: Annotated[
        Literal["write", "sync", "off"],
        Meta(
            description="How usage is made safe before a reply ends: `write` in a file, `sync` "
            "in a file that outlives a power cut, `off` in the database."
        ),
    ] = "write"
    offline_seconds: Annotated[
        Seconds, Meta(description="How long keys that are known go on while the database is away.")
    ] = 600.0

    secret_keys: Annotated[
        tuple[KeyPlace, ...],
        Meta(
            description="Where the keys are that encrypt two-factor secrets and kept "
            "contents of requests. Each has at least 32 characters. "
            "The first encrypts, the others still open. Unset: "
            "`secret.key` in `folder`, made at the first start. PostgreSQL needs one, the same "
            "for all replicas."
        ),
    ] = ()

    def __repr__(self) -> str:
        return f"Store(folder={self.folder!r}, journal={self.journal!r})"


def store_rules(store: StoreSettings) -> Iterator[Broken]:
    """Yield the errors in the keys of the database."""
    at: KeyPath = ("store", "secret_keys")
    for index, secret in enumerate(store.secret_keys):
        places = [name for name in ("env", "file", "command") if getattr(secret, name) is not None]
        if len(places) != 1:
            found = " and ".join(f"`{each}`" for each in places) or "nothing"
            place: KeyPath = (*at, index)
            yield Broken(place, f"has {found}; it takes {PLACES}", relies_on=(place,))
    if (store.url or "").startswith("postgres") and not store.secret_keys:
        yield Broken(
            at,
            "is empty; with PostgreSQL name a key, the same for all replicas: "
            "`openssl rand -base64 33` makes one",
        )
