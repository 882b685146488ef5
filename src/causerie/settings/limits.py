"""Limits by the minute and at the same time, of a door, a model or an alias."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from causerie.settings.values import Count


class LimitSettings(Struct, frozen=True, kw_only=True):
    """Limits on use, over all callers."""

    requests_per_minute: Annotated[Count | None, Meta(description="Unset: no limit.")] = None
    tokens_per_minute: Annotated[
        Count | None, Meta(description="Prompt and output together. Unset: no limit.")
    ] = None
    input_tokens_per_minute: Annotated[
        Count | None, Meta(description="Of prompts. Unset: no limit.")
    ] = None
    output_tokens_per_minute: Annotated[
        Count | None, Meta(description="Of replies, reasoning too. Unset: no limit.")
    ] = None
    concurrent: Annotated[
        Count | None, Meta(description="Requests at the same time. Unset: no limit.")
    ] = None
