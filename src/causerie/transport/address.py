"""Destination of requests: a base URL, parsed once."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True, slots=True)
class Address:
    """``path`` is what stands before every path of a request; it does not end in a slash.

    ``authorization`` is the header value of a user name and password in the
    address (those of proxies have them), else empty.
    """

    tls: bool
    host: str
    port: int
    path: str = ""
    authorization: str = field(default="", repr=False)

    @staticmethod
    def parse(url: str) -> Address:
        """From ``http://`` or ``https://``; raises :class:`ValueError` that says what is wrong."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise ValueError("an address begins with http:// or https://")
        if not parts.hostname:
            raise ValueError("the address names no host")
        if parts.query or parts.fragment:
            raise ValueError("an address has no `?` and no `#`")
        tls = parts.scheme == "https"
        authorization = ""
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = "Basic " + b64encode(pair.encode()).decode("ascii")
        return Address(
            tls=tls,
            host=parts.hostname,
            port=parts.port or (443 if tls else 80),
            path=parts.path.rstrip("/"),
            authorization=authorization,
        )

    @property
    def place(self) -> str:
        """Host and port, for people."""
        return f"{self._name}:{self.port}"

    @property
    def authority(self) -> str:
        usual = 443 if self.tls else 80
        return self._name if self.port == usual else self.place

    @property
    def _name(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host
