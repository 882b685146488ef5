"""Address and keys of the metrics."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from causerie.settings.values import Digest

_Listen = Annotated[
    str,
    Meta(
        pattern=r"^(\[[0-9a-fA-F:.]+\]|[a-zA-Z0-9]([a-zA-Z0-9.-]{0,251}[a-zA-Z0-9])?):[0-9]{1,5}\Z",
        extra={"words": "an address with a port, like `127.0.0.1:9100`"},
    ),
]


class Metrics(Struct, frozen=True, kw_only=True):
    """Address and keys of `/metrics`."""

    listen: Annotated[
        _Listen | None,
        Meta(
            description="Address and port that `/metrics` alone is served at, like "
            "`127.0.0.1:9100`; it is then not at the address of the service. Unset: there."
        ),
    ] = None
    keys: Annotated[
        tuple[Digest, ...] | None,
        Meta(
            description="Digests of the keys that open it, as `causerie key` prints them; they are "
            "sent as `Authorization: Bearer KEY`. Unset: no key is needed."
        ),
    ] = None

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of `listen`."""
        if self.listen is None:
            return None
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)
