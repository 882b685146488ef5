"""Types that several settings share: names, sizes, addresses, secrets, limits and prices.

Nothing here knows which setting takes which type.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct

from causerie.settings.toml import KeyPath


def matching(pattern: str, words: str, **notes: object) -> Meta:
    """Return the annotation of a text setting: its pattern, and in words what it takes."""
    return Meta(pattern=pattern, extra={"words": words, **notes})


Text = Annotated[str, Meta(min_length=1)]
FilePath = Annotated[Text, Meta(extra={"path": "file"})]
Program = Annotated[Text, Meta(extra={"path": "program"})]
Count = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0, le=86_400)]
Patience = Annotated[float, Meta(gt=0, le=86_400)]
ModelPattern = Annotated[
    str,
    matching(
        r"^[a-zA-Z0-9][a-zA-Z0-9._:/-]{0,126}\*?\Z",
        "a name of letters, digits and `._:/-`, which may end in `*`",
    ),
]
Name = Annotated[
    str, matching(r"^[a-zA-Z0-9][a-zA-Z0-9._:/-]{0,127}\Z", "a name of letters, digits and `._:/-`")
]
DoorName = Annotated[
    str, matching(r"^[a-z0-9][a-z0-9-]{0,62}\Z", "a lower-case name of letters, digits and `-`")
]
HostName = Annotated[
    str, matching(r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z", "a host name in lower case")
]
Origin = Annotated[
    str,
    matching(
        r"^(\*|[a-z][a-z0-9+.-]*://([a-z0-9_.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?"
        r"|(?!https?://)[a-z][a-z0-9+.-]*://)\Z",
        "an origin in lower case like `https://app.example.com` or "
        "`http://localhost:5173`, without a path; `app://` for all of a scheme; or `*`",
    ),
]
Prefix = Annotated[
    str,
    matching(r"^(/[a-zA-Z0-9._~-]+)+\Z", "a path like `/gateway/v1`, without a slash at the end"),
]
Digest = Annotated[
    str,
    matching(
        r"^(ck_[a-zA-Z0-9]{1,32}:)?[0-9a-f]{64}\Z",
        "a digest as `causerie key` prints it",
        digest=True,
    ),
]
Size = Annotated[
    str, matching(r"^[0-9]+(\.[0-9]+)? ?([kMGT]i?)?B\Z", 'a size like `"6GiB"` or `"500MB"`')
]
FieldPath = Annotated[
    str,
    matching(
        r"^[a-zA-Z_][a-zA-Z0-9_-]{0,127}(\.[a-zA-Z_][a-zA-Z0-9_-]{0,127}){0,15}\Z",
        "the name of a field, or a path like `messages.content.cache_control`",
    ),
]
WebAddress = Annotated[
    str,
    matching(r"^https?://[^\s/]+(/\S*)?\Z", "an address that begins with `http://` or `https://`"),
]
Network = Annotated[
    str, matching(r"^[0-9a-fA-F.:]+(/[0-9]{1,3})?\Z", "an address or a network like `10.0.0.0/8`")
]
Keys = Literal["off", "accounts"] | tuple[Digest, ...]
Day = Annotated[datetime.date, Meta(extra={"words": "a day like `2026-11-21`"})]
VariableName = Annotated[
    str,
    matching(
        r"^[A-Za-z_][A-Za-z0-9_]{0,127}\Z", "the name of an environment variable", secret=True
    ),
]


class Secret(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a secret is found: exactly one of ``env``, ``file`` and ``command`` is set."""

    env: VariableName | None = None
    file: FilePath | None = None
    command: Annotated[tuple[Text, ...], Meta(min_length=1)] | None = None
    environment: tuple[VariableName, ...] = ()
    """Variables that the command gets in addition to those that every program needs."""
    lifetime: Annotated[float, Meta(ge=1, le=2_592_000)] | None = None
    """Seconds for which the command's output is valid: it is run again before they are over."""


def secrets(value: object, path: KeyPath = (), owner: str = "") -> Iterator[NamedSecret]:
    """Yield path, owner's id or name, and place of each secret that the settings name."""
    if isinstance(value, Secret):
        yield path, owner, value
    elif isinstance(value, Struct):
        owner = getattr(value, "id", None) or getattr(value, "name", None) or owner
        for name in value.__struct_fields__:
            yield from secrets(getattr(value, name), (*path, name), owner)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from secrets(item, (*path, index), owner)


NamedSecret = tuple[KeyPath, str, Secret]
PLACES = '`{ env = "NAME" }`, `{ file = "PATH" }` or `{ command = ["PROGRAM", ...] }`'
KeyPlace = Annotated[
    Secret,
    Meta(
        extra={
            "words": PLACES,
            "inline": f"stands in the file itself; write where it is found: {PLACES}",
        }
    ),
]


TrustedCertificates = Annotated[
    FilePath | None,
    Meta(description="Certificates to trust (PEM). Unset: those that the system trusts."),
]


def byte_count(size: str) -> int:
    """Return the number of bytes in a size like ``6GiB``, ``500 MB`` or ``4096B``."""
    number = size.rstrip("BkMGTi ")
    unit = size[len(number) :].strip()
    power = " kMGT".index(unit[0]) if unit[0] != "B" else 0
    return int(float(number) * (1024 if "i" in unit else 1000) ** power)


class LimitSettings(Struct, frozen=True, kw_only=True):
    """Limits on requests and tokens, over all callers together."""

    requests_per_minute: Count | None = None
    """Unset: no limit."""
    tokens_per_minute: Count | None = None
    """Prompt and output together. Unset: no limit."""
    input_tokens_per_minute: Count | None = None
    """Of prompts. Unset: no limit."""
    output_tokens_per_minute: Count | None = None
    """Of replies, reasoning too. Unset: no limit."""
    concurrent: Count | None = None
    """Requests at the same time. Unset: no limit."""


Money = Annotated[
    str, matching(r"^[0-9]{1,9}(\.[0-9]{1,9})?\Z", 'an amount as text, like `"0.15"`')
]

# So the cost of 2^31 tokens of each kind fits the database, which keeps billionths in 64 bits.
Price = Annotated[
    str,
    matching(
        r"^([01]?[0-9]{1,6}(\.[0-9]{1,9})?|2000000(\.0{1,9})?)\Z",
        'an amount of at most 2,000,000 as text, like `"0.15"`',
    ),
]


class TokenPrices(Struct, frozen=True, kw_only=True):
    """Prices per 1M tokens of each kind, in the one currency of the service."""

    prompt: Price = "0"
    """For a million tokens of prompts."""
    completion: Price = "0"
    """For a million tokens of replies, reasoning too where it has no price."""
    cached: Price | None = None
    """For a million prompt tokens from the cache. Unset: like `prompt`."""
    cache_write: Price | None = None
    """For a million prompt tokens that the provider writes into its cache, where it counts them.
    Unset: like `prompt`."""
    reasoning: Price | None = None
    """For a million tokens of reasoning. Unset: like `completion`."""


class PriceTier(TokenPrices, frozen=True, kw_only=True):
    """Token prices of requests whose prompt is longer than `above`, in place of the usual ones."""

    above: Count
    """It applies to requests with more prompt tokens."""


Modality = Literal["text", "image", "file", "audio", "video"]


class ClaimSettings(Struct, frozen=True, kw_only=True):
    """Capabilities that a provider claims for its model.

    They were imported, and are shown as claimed until a probe measures them."""

    supported_parameters: tuple[Text, ...] | None = None
    """Parameters that it claims to honour. No request is rejected by it."""
    input_modalities: tuple[Modality, ...] | None = None
    """What it claims to take: `text`, `image`, `file`, `audio`, `video`."""
    output_modalities: tuple[Modality, ...] | None = None
    """What it claims to return."""


class PriceSettings(TokenPrices, frozen=True, kw_only=True):
    """Prices per 1M tokens of each kind and per request, in the one currency of the service."""

    request: Price = "0"
    """For one request, whatever its size; of a rerank for each search unit."""
    tiers: tuple[PriceTier, ...] = ()
    """Other prices of long prompts, each `above` so many tokens."""
