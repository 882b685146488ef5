"""The headers of a request: names without case, values as text."""

from __future__ import annotations

_MAX_NAMES = 512
_names: dict[bytes, str] = {}  # as they came to as they are read; most come again and again


class Headers:
    """Read by lower-case name. A header that came twice gives its first value."""

    __slots__ = ("_again", "_first")

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        self._again: list[tuple[str, str]] = []

    def add(self, name: bytes, value: bytes) -> None:
        """Add one header as it came over the wire (latin-1, as HTTP has it)."""
        key = _names.get(name) or _read(name)
        if key in self._first:
            self._again.append((key, value.decode("latin-1")))
        else:
            self._first[key] = value.decode("latin-1")

    def get(self, name: str, default: str = "") -> str:
        """The value of the header ``name`` (in lower case)."""
        return self._first.get(name, default)

    def every(self, name: str) -> list[str]:
        """All values of the header ``name`` (in lower case), in their order."""
        if name not in self._first:
            return []
        if not self._again:
            return [self._first[name]]
        return [self._first[name], *(value for key, value in self._again if key == name)]

    def __contains__(self, name: str) -> bool:
        return name in self._first


def _read(name: bytes) -> str:
    key = name.decode("latin-1").lower()
    if len(name) <= 64 and len(_names) < _MAX_NAMES:
        _names[name] = key
    return key
