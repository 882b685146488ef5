"""Classes of the calls of a reply, as metrics and catalog count them."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

CallClass = Literal["fine", "invalid_json", "unknown_name", "schema_mismatch", "unchecked"]
"""``unchecked``: too large for the check, or its schema is one that nobody here can check."""


class CallCounts(Struct, frozen=True):
    """Delivered calls, by class."""

    fine: int = 0
    invalid_json: int = 0
    unknown_name: int = 0
    schema_mismatch: int = 0
    unchecked: int = 0
