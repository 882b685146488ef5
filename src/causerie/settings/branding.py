"""Name, colour and links of the pages for people."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from causerie.settings.values import Text, WebAddress

Colour = Annotated[
    str, Meta(pattern=r"^#[0-9a-fA-F]{6}\Z", extra={"words": "a colour like `#0f6b5c`"})
]
Contact = Annotated[
    str,
    Meta(
        pattern=r"^(https?://[^\s/]+(/\S*)?|[^@\s:]+@[^@\s:]+)\Z",
        extra={"words": "an e-mail address, or a web address"},
    ),
]


class BrandingSettings(Struct, frozen=True, kw_only=True):
    """Name, colour and links of the pages for people."""

    name: Annotated[
        Annotated[str, Meta(min_length=1, max_length=40)],
        Meta(description="Name of the service on its pages and in authenticators."),
    ] = "Causerie"
    accent: Annotated[
        Colour | None,
        Meta(
            description="Colour of buttons, links and marks, like `#1a4fb4`. Pages use the "
            "nearest shade of it that can be read, by day and by night. Unset: green."
        ),
    ] = None
    terms: Annotated[WebAddress | None, Meta(description="Address of the terms of use.")] = None
    contact: Annotated[
        Contact | None, Meta(description="Whom people write to: an e-mail address, or a page.")
    ] = None
    logos: Annotated[
        dict[str, Text],
        Meta(
            description="Logos in the catalog, by the author of models (what an id begins with) or "
            "the name of a provider: a file (`.svg`, `.png`, `.webp`) of at most 64 KiB, or "
            "`data:image/png;base64,…`. Without one, initials."
        ),
    ] = {}
