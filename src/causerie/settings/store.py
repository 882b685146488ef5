"""Where people, keys and usage are kept, and what people see of it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from causerie.settings.values import Digest, Seconds, Text, WebAddress


class Store(Struct, frozen=True, kw_only=True):
    """The database; in use as soon as a door takes keys of accounts."""

    url: Annotated[
        Text | None,
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
        Seconds,
        Meta(description="How long keys that are known go on while the database is away."),
    ] = 600.0

    def __repr__(self) -> str:
        return f"Store(folder={self.folder!r}, journal={self.journal!r})"


class Console(Struct, frozen=True, kw_only=True):
    """The pages for people at `/console`, and the management API at `/api`."""

    enabled: Annotated[
        bool, Meta(description="Whether they are served where a door takes keys of accounts.")
    ] = True
    operator_keys: Annotated[
        tuple[Digest, ...],
        Meta(
            description="Digests of keys by which programs of operators use the management API; "
            "`causerie key` makes them.",
        ),
    ] = ()
    sign_up: Annotated[
        bool, Meta(description="Whether anybody may make an account, without an invitation.")
    ] = False
    address: Annotated[
        WebAddress | None,
        Meta(
            description="Address of the service as browsers see it, for links and the check of "
            "forms, like `https://causerie.example.org`. Unset: as the browser sends it."
        ),
    ] = None
