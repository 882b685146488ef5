"""Storage of people, keys and usage, and people's view of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct

from causerie.settings.lines import Path as KeyPath
from causerie.settings.problems import Broken
from causerie.settings.values import (
    PLACES,
    Count,
    Digest,
    KeyPlace,
    Network,
    Seconds,
    Text,
    WebAddress,
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


UNLIMITED = "unlimited"


class ConsoleSettings(Struct, frozen=True, kw_only=True):
    """The pages for people at `/console`, and the management API at `/api`."""

    enabled: Annotated[
        bool, Meta(description="Whether they are served where a door takes keys of accounts.")
    ] = True
    operator_keys: Annotated[
        tuple[Digest, ...],
        Meta(
            description="Digests of keys by which programs of operators use the management API; "
            "`causerie key` makes them."
        ),
    ] = ()
    api_requests_per_minute: Annotated[
        Count, Meta(description="How often a key may use the management API within a minute.")
    ] = 600
    sign_up: Annotated[
        bool,
        Meta(
            description="Whether anybody may ask for an account, without an invitation. With "
            "`mail.host` they get a link by mail; without, an operator gives it to them."
        ),
    ] = False
    new_project_budget: Annotated[
        str,
        Meta(
            pattern=r"^(unlimited|[0-9]{1,9}(\.[0-9]{1,9})?)\Z",
            description="Money that the project of a person who signed up may spend in a month, "
            'until an operator changes its budgets, like `"5"`. `"0"`: only what costs nothing; '
            '`"unlimited"`: no budget.',
            extra={"words": 'an amount as text, like `"5"`, or `"unlimited"`'},
        ),
    ] = "0"
    public_rankings: Annotated[
        bool,
        Meta(
            description="Whether everybody may see which models and providers of the catalog are "
            "used most, by tokens of all projects together. Otherwise only operators see it."
        ),
    ] = False
    proxies: Annotated[
        tuple[Network, ...],
        Meta(
            description="Addresses or networks of proxies in front of it, like `10.0.0.0/8`; "
            "what they say of where a visitor comes from is believed."
        ),
    ] = ()
    address: Annotated[
        WebAddress | None,
        Meta(
            description="Address of the service as browsers see it, for links and the check of "
            "forms, like `https://causerie.example.org`; at other host names there is no console. "
            "Unset: as the browser sends it."
        ),
    ] = None


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
