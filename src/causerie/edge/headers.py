"""The headers of a request: names without case, values as text."""

from __future__ import annotations

from collections.abc import Sequence
from operator import methodcaller

_MAX_NAMES = 512


class Headers(dict[str, str]):
    """Values by lower-case name. A header that came twice gives its first value.

    ``again`` are the names and values of those that had come before.
    """

    again: Sequence[tuple[str, str]] = ()

    def every(self, name: str) -> list[str]:
        """All values of the header ``name`` (in lower case), in their order."""
        if name not in self:
            return []
        return [self[name], *(value for key, value in self.again if key == name)]


class _Names(dict[bytes, str]):
    """Names as they came to as they are read; most come again and again."""

    def __missing__(self, name: bytes) -> str:
        key = name.decode("latin-1").lower()
        if len(name) <= 64 and len(self) < _MAX_NAMES:
            self[name] = key
        return key


_name = _Names().__getitem__
_text = methodcaller("decode", "latin-1")  # as HTTP has it


def headers_of(sent: Sequence[bytes]) -> Headers:
    """Headers as they came over the wire: names and values in turn."""
    pieces = iter(sent)
    headers = Headers(zip(map(_name, pieces), map(_text, pieces), strict=True))
    return headers if 2 * len(headers) == len(sent) else _with_repeated(sent)


def _with_repeated(sent: Sequence[bytes]) -> Headers:
    headers, again = Headers(), []
    for name, value in zip(map(_name, sent[::2]), map(_text, sent[1::2]), strict=True):
        if name in headers:
            again.append((name, value))
        else:
            headers[name] = value
    headers.again = again
    return headers
