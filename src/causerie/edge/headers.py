"""The headers of a request: names without case, values as text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from causerie.access.credential import KEY_HEADERS

if TYPE_CHECKING:
    from causerie.edge.request_hints import RequestHints

_NEVER = re.compile(r"q=0(\.0*)?")


class Headers(dict[str, str]):
    """Values by lower-case name. A header that came twice gives its first value.

    ``again`` are the names and values of those that had come before, if there are any. What was
    read of them is kept, since the headers of a head that comes again are the same object.
    """

    again: list[tuple[str, str]] | None = None
    hints: RequestHints | None = None
    plain_json: bool | None = None

    def add_again(self, name: str, value: str) -> None:
        if self.again is None:
            self.again = []
        self.again.append((name, value))

    @property
    def take_gzip(self) -> bool:
        """Return true if ``Accept-Encoding`` accepts gzip by name (RFC 9110, 12.5.3)."""
        for part in self.get("accept-encoding", "").split(","):
            coding, _, weight = part.partition(";")
            if coding.strip() == "gzip":
                return _NEVER.fullmatch(weight.strip()) is None
        return False

    def take_keys(self) -> list[str]:
        """Take out the values of key headers that had come again, without their scheme."""
        again = self.again or []
        self.again = [(name, value) for name, value in again if name not in KEY_HEADERS]
        return [value.rpartition(" ")[2] for name, value in again if name in KEY_HEADERS]

    def every(self, name: str) -> list[str]:
        """All values of the header ``name`` (in lower case), in their order."""
        if name not in self:
            return []
        return [self[name], *(value for key, value in self.again or () if key == name)]
