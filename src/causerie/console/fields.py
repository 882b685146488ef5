"""The fields of a form or a query: names and text, in their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import parse_qsl

from causerie.errors import InvalidRequest

_MOST = 500


class FormFields:
    """Fields of a form or a query. A missing field is empty."""

    __slots__ = ("_pairs",)

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self._pairs = tuple(pairs)

    @staticmethod
    def parse(text: str) -> FormFields:
        """From ``application/x-www-form-urlencoded``; raises :class:`InvalidRequest`."""
        try:
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST)
        except ValueError as failure:
            raise InvalidRequest(f"A form has at most {_MOST} fields.") from failure
        for name, value in pairs:
            if "\0" in name or "\0" in value:
                raise InvalidRequest("A text holds the character 0; leave it out.", param=name)
        return FormFields(pairs)

    def get(self, name: str) -> str:
        """The first value, without white space around it."""
        return self.raw(name).strip()

    def raw(self, name: str) -> str:
        """The first value as it was sent: for passwords."""
        return next((value for key, value in self._pairs if key == name), "")

    def every(self, name: str) -> Sequence[str]:
        """All values, in their order."""
        return [value.strip() for key, value in self._pairs if key == name]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._pairs)

    def __contains__(self, name: str) -> bool:
        return any(key == name for key, _ in self._pairs)

    def __bool__(self) -> bool:
        return bool(self._pairs)
