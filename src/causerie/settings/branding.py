"""Name, colour and links of the pages for people."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from causerie.settings.values import Count, Digest, Network, Text, WebAddress

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


UNLIMITED = "unlimited"


class ConsoleSettings(Struct, frozen=True, kw_only=True):
    """The pages for people at `/console`, and the management API at `/api`."""

    enabled: Annotated[
        bool, Meta(description="Whether they are served where a door takes keys of accounts.")
    ] = True
    operator_keys: Annotated[
        tuple[Digest, ...],
        Meta(
            description="Digests of keys by which programs of operators use the management API; "
            "`causerie key` makes them."
        ),
    ] = ()
    api_requests_per_minute: Annotated[
        Count, Meta(description="How often a key may use the management API within a minute.")
    ] = 600
    sign_up: Annotated[
        bool,
        Meta(
            description="Whether anybody may ask for an account, without an invitation. With "
            "`mail.host` they get a link by mail; without, an operator gives it to them."
        ),
    ] = False
    new_project_budget: Annotated[
        str,
        Meta(
            pattern=r"^(unlimited|[0-9]{1,9}(\.[0-9]{1,9})?)\Z",
            description="Money that the project of a person who signed up may spend in a month, "
            'until an operator changes its budgets, like `"5"`. `"0"`: only what costs nothing; '
            '`"unlimited"`: no budget.',
            extra={"words": 'an amount as text, like `"5"`, or `"unlimited"`'},
        ),
    ] = "0"
    public_rankings: Annotated[
        bool,
        Meta(
            description="Whether everybody may see which models and providers of the catalog are "
            "used most, by tokens of all projects together. Otherwise only operators see it."
        ),
    ] = False
    proxies: Annotated[
        tuple[Network, ...],
        Meta(
            description="Addresses or networks of proxies in front of it, like `10.0.0.0/8`; "
            "what they say of where a visitor comes from is believed."
        ),
    ] = ()
    address: Annotated[
        WebAddress | None,
        Meta(
            description="Address of the service as browsers see it, for links and the check of "
            "forms, like `https://causerie.example.org`; at other host names there is no console. "
            "Unset: as the browser sends it."
        ),
    ] = None
