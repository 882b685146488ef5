"""Why a request passes a target by: a field of the request, and words for people."""

from __future__ import annotations

from msgspec import Struct


class TargetExclusion(Struct, frozen=True):
    """``field`` of the request is what leaves the target out; empty where no field is."""

    field: str
    words: str
