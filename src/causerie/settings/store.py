"""Storage: the database and the journal, and the server where replicas count together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct

from causerie.settings.problems import Broken
from causerie.settings.provider import certificate_rules
from causerie.settings.toml import KeyPath
from causerie.settings.values import FilePath, KeyPlace, Seconds, Text, matching

_StoreAddress = Annotated[
    str,
    matching(
        r"^(sqlite:///(?!:memory:)|postgres(ql)?://)\S",
        "an address like `sqlite:///PATH` or `postgresql://HOST/NAME`",
        secret=True,
    ),
]


class StoreSettings(Struct, frozen=True, kw_only=True):
    """The database; in use as soon as a door takes keys of accounts."""

    url: Annotated[_StoreAddress | None, Meta(extra={"secret": True})] = None
    """`sqlite:///PATH` or `postgresql://USER:PASSWORD@HOST/NAME`; with a password better in the
    variable than in the file. Unset: SQLite in `folder`."""
    folder: FilePath | None = None
    """Folder of this process for what must not be lost. Unset: `causerie` in `$XDG_DATA_HOME` or
    `~/.local/share`."""
    journal: Literal["write", "sync", "off"] = "write"
    """How usage is made safe before a reply ends: `write` in a file, `sync` in a file that
    outlives a power cut, `off` in the database."""
    offline_seconds: Seconds = 600.0
    """How long keys that are known go on while the database is away."""

    secret_keys: tuple[KeyPlace, ...] = ()
    """Where the keys are that encrypt two-factor secrets and kept contents of requests. Each has
    at least 32 characters. The first encrypts, the others still open. Unset: `secret.key` in
    `folder`, made at the first start. PostgreSQL needs one, the same for all replicas."""

    def __repr__(self) -> str:
        return f"Store(folder={self.folder!r}, journal={self.journal!r})"


class RetentionSettings(Struct, frozen=True, kw_only=True):
    """Time limits for rows of the database. Sums of usage stay for ever."""

    requests_days: Annotated[int, Meta(ge=7, le=36_500)] | None = None
    """Days for single requests: the ledger's records, without contents. Unset: for ever."""
    audit_days: Annotated[int, Meta(ge=90, le=36_500)] | None = None
    """Days for entries of the audit log. Unset: for ever."""
    contents_days: Annotated[int, Meta(ge=1, le=90)] = 90
    """Most days for which a project can keep prompts and replies; older ones are deleted."""


def store_rules(store: StoreSettings) -> Iterator[Broken]:
    if (store.url or "").startswith("postgres") and not store.secret_keys:
        yield Broken(
            ("store", "secret_keys"),
            "is empty; with PostgreSQL name a key, the same for all replicas: "
            "`openssl rand -base64 33` makes one",
        )


_SharedAddress = Annotated[
    str,
    matching(
        r"^(valkeys?|rediss?|unix)://\S+\Z", "an address like `valkey://HOST:6379/0`", secret=True
    ),
]


class SharedSettings(Struct, frozen=True, kw_only=True):
    """A Valkey or Redis server in which replicas count limits and budgets together."""

    url: Annotated[_SharedAddress | None, Meta(extra={"secret": True})] = None
    """`valkey://[USER:PASSWORD@]HOST:PORT/NUMBER`, `valkeys://` over TLS; with a password better
    in the variable than in the file. Unset: each process counts for itself."""
    ca_file: FilePath | None = None
    """Certificates to trust (PEM) where the address begins with `valkeys://` or `rediss://`, in
    addition to those that the system trusts. The certificate must have the host of the address."""
    away: Literal["memory", "refuse"] = "memory"
    """While the server is away: `memory` counts in each process for itself, `refuse` lets nobody
    in who has limits or budgets (503)."""
    reply_seconds: Annotated[float, Meta(gt=0, le=10)] = 0.25
    """Longest time for an answer of the server. After it the server counts as away, and a request
    that waited for it goes on as `away` says."""
    prefix: Text = "causerie"
    """What all keys begin with; services that differ in it share nothing."""

    def __repr__(self) -> str:
        return f"Shared(away={self.away!r}, prefix={self.prefix!r})"


def shared_rules(shared: SharedSettings) -> Iterator[Broken]:
    at: KeyPath = ("shared", "ca_file")
    yield from (wrong := list(certificate_rules(at, shared.ca_file)))
    encrypted = (shared.url or "").startswith(("valkeys:", "rediss:"))
    if shared.ca_file is not None and not wrong and not encrypted:
        yield Broken(at, "means nothing unless `shared.url` begins with `valkeys://`")
