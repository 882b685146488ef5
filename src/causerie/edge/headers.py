"""The headers of a request: names without case, values as text."""

from __future__ import annotations

_MAX_NAMES = 512
NAMES: dict[bytes, str] = {}  # as they came to as they are read; most come again and again


class Headers(dict[str, str]):
    """Values by lower-case name. A header that came twice gives its first value."""

    __slots__ = ("_again",)

    def __init__(self) -> None:
        self._again: list[tuple[str, str]] | None = None

    def add(self, name: bytes, value: bytes) -> None:
        """Add one header as it came over the wire (latin-1, as HTTP has it)."""
        key = NAMES.get(name) or _read(name)
        if key not in self:
            self[key] = value.decode("latin-1")
        elif self._again is None:
            self._again = [(key, value.decode("latin-1"))]
        else:
            self._again.append((key, value.decode("latin-1")))

    def every(self, name: str) -> list[str]:
        """All values of the header ``name`` (in lower case), in their order."""
        if name not in self:
            return []
        if self._again is None:
            return [self[name]]
        return [self[name], *(value for key, value in self._again if key == name)]


def _read(name: bytes) -> str:
    key = name.decode("latin-1").lower()
    if len(name) <= 64 and len(NAMES) < _MAX_NAMES:
        NAMES[name] = key
    return key
