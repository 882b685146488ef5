"""Body of a request to a provider while it is written, with the changes made to it."""

from __future__ import annotations

from collections.abc import Mapping

from causerie.errors import InvalidRequest
from causerie.protocol.request import ChatRequest
from causerie.providers.dialect import Dialect


class RequestDraft:
    """``fields`` become the body; ``changes`` say what differs from what the client sent.

    ``document`` is what was sent of fields that may go out.
    """

    __slots__ = ("changes", "dialect", "document", "fields", "request")

    def __init__(
        self, request: ChatRequest, dialect: Dialect, document: Mapping[str, object]
    ) -> None:
        self.request = request
        self.dialect = dialect
        self.document = document
        self.fields: dict[str, object] = {}
        self.changes: list[str] = []

    def given(self, name: str) -> bool:
        """Return true if the client sent it; ``null`` is not sending it."""
        return self.document.get(name) is not None

    def dropped(self, name: str) -> None:
        self.changes.append(f"{name} dropped")

    def moved(self, name: str, to: str) -> None:
        self.changes.append(f"{name}->{to}")

    def unsupported(self, param: str, advice: str = "") -> InvalidRequest:
        """The refusal of a parameter whose effect was relied on."""
        words = f"The provider that serves this model does not support `{param}`."
        return InvalidRequest(
            f"{words} {advice}".rstrip(), code="unsupported_parameter", param=param
        )
