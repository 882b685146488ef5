"""Public names of models: aliases, the router's catalog with its endpoints and prices, and what
visitors may chat with.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

from causerie.settings.problems import Broken
from causerie.settings.values import (
    Count,
    DoorName,
    LimitSettings,
    ModelPattern,
    Money,
    Name,
    Natural,
    PriceSettings,
    Text,
    doc,
)


class AliasTarget(Struct, frozen=True, kw_only=True):
    """One that can answer: a model of a provider, or one that this service runs itself."""

    model: Annotated[Text, doc("Id of the model, there or of an entry of `models`.")]
    provider: Annotated[
        DoorName | None, doc("Name of the provider. Unset: a model that this service runs itself.")
    ] = None
    priority: Annotated[
        Natural, doc("0 is asked first; higher ones when no lower one answers.")
    ] = 0
    weight: Annotated[
        float, Meta(gt=0, le=1_000_000), doc("Share of the requests among targets of one priority.")
    ] = 1.0

    @property
    def name(self) -> str:
        """Return the name of the target in routing, headers and logs."""
        return self.model if self.provider is None else f"{self.provider}/{self.model}"


class AliasSettings(Struct, frozen=True, kw_only=True):
    """A public model name, and the targets that answer for it."""

    id: Annotated[
        ModelPattern,
        doc(
            "What a request names as `model`; with `*` at its end every name that "
            "begins so, see [wildcards](../guides/doors.md#every-model-of-a-provider)."
        ),
    ]
    targets: Annotated[tuple[AliasTarget, ...], doc("Who answers, at least one.")]
    name: Annotated[Text | None, doc("Name for people. Unset: the id.")] = None
    description: Annotated[str, doc("One sentence for the catalog.")] = ""
    limits: Annotated[LimitSettings, doc("How much it is used at most, over all who use it.")] = (
        LimitSettings()
    )
    price: Annotated[PriceSettings, doc("What its use costs.")] = PriceSettings()


# The router's catalog: models by `author/slug`, and the endpoints of each, with their prices.

Slug = Annotated[
    str,
    Meta(
        pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}/[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}(:(free|extended))?\Z",
        extra={"words": "a name like `author/slug`, with `:free` or `:extended` for a variant"},
    ),
]
Quantization = Literal["int4", "int8", "fp4", "fp6", "fp8", "fp16", "bf16", "fp32"]


class CatalogEndpointSettings(Struct, frozen=True, kw_only=True):
    """An endpoint of the model: at a provider, or in this service itself."""

    model: Annotated[Text, doc("Id of the model, there or of an entry of `models`.")]
    provider: Annotated[
        DoorName | None, doc("Name of the provider. Unset: a model that this service runs itself.")
    ] = None
    price: Annotated[PriceSettings, doc("What its use costs here.")] = PriceSettings()
    cost: Annotated[
        PriceSettings | None,
        doc(
            "What the provider charged when the model was imported: what later lists "
            "of the provider are compared with. Nobody is shown or charged it. Unset: not known."
        ),
    ] = None
    context_length: Annotated[
        Count | None,
        doc(
            "Tokens that prompt and output may have. A model that this service runs "
            "is held to it; a provider keeps to its own. Unset: as a probe found."
        ),
    ] = None
    max_output_tokens: Annotated[
        Count | None,
        doc(
            "Most tokens of a reply; a higher limit of a request is lowered to it. "
            "Unset: not known."
        ),
    ] = None
    supported_parameters: Annotated[
        tuple[Text, ...] | None, doc("Parameters that it honours here. Unset: as a probe found.")
    ] = None
    quantization: Annotated[
        Quantization | None, doc("Number type of its weights. Unset: not known.")
    ] = None
    keeps_data: Annotated[
        bool, doc("Whether it may keep what it is sent; such requests can avoid it.")
    ] = True

    @property
    def name(self) -> str:
        """Return the name of the endpoint in routing, headers and logs."""
        return self.model if self.provider is None else f"{self.provider}/{self.model}"


class CatalogModelSettings(Struct, frozen=True, kw_only=True):
    """A model behind the doors of `kind = "router"`."""

    id: Annotated[Slug, doc("What a request names as `model`.")]
    endpoints: Annotated[tuple[CatalogEndpointSettings, ...], doc("Who offers it, at least one.")]
    aliases: Annotated[tuple[Name, ...], doc("Other names for it.")] = ()
    name: Annotated[Text | None, doc("Name for people. Unset: the id.")] = None
    description: Annotated[str, doc("A few sentences for the catalog.")] = ""
    created: Annotated[
        datetime.date | None,
        doc("When the model came out.", extra={"words": "a day like `2026-11-21`"}),
    ] = None
    ends: Annotated[
        datetime.date | None,
        doc(
            "Its last day in the catalog. Unset: it stays.",
            extra={"words": "a day like `2026-11-21`"},
        ),
    ] = None
    limits: Annotated[LimitSettings, doc("How much it is used at most, over all who use it.")] = (
        LimitSettings()
    )


class FreeSettings(Struct, frozen=True, kw_only=True):
    """Limits of each account on the `:free` models, all of them together."""

    requests_per_minute: Annotated[Count, doc("Requests per minute.")] = 20
    concurrent: Annotated[Count, doc("Requests at the same time.")] = 4
    requests_per_day: Annotated[
        Count, doc("Requests a day (UTC) of an account with keys in the database.")
    ] = 50
    paid_requests_per_day: Annotated[Count, doc("The same for one into which money was put.")] = (
        1000
    )
    paid_from: Annotated[Money, doc("How much has to be put in for that.")] = "10"


# Chat for visitors without an account: which models, and how much of them.


class PublicChatSettings(Struct, frozen=True, kw_only=True):
    """Chat on the catalog's pages for visitors without an account; off without `models`."""

    models: Annotated[
        tuple[Slug, ...],
        doc(
            "Ids of the catalog. Each has to be free at all of its endpoints; nothing "
            "else can be asked."
        ),
    ] = ()
    messages_per_day: Annotated[
        Count, doc("Messages of an address (IPv6: of a network of 64 bits) per day, in UTC.")
    ] = 20
    total_messages_per_day: Annotated[Count, doc("Messages of all visitors together per day.")] = (
        1000
    )
    concurrent: Annotated[Count, doc("Replies at the same time. An address has one at a time.")] = 4
    max_characters: Annotated[
        Count, doc("Longest conversation, in characters of all of its messages.")
    ] = 8000
    max_tokens: Annotated[Count, doc("Most tokens of a reply.")] = 512


def public_chat_rules(
    chat: PublicChatSettings, catalog: Sequence[CatalogModelSettings]
) -> Iterator[Broken]:
    """Yield the models that cost something. One that is not there may come from the database."""
    priced = {
        entry.id for entry in catalog for endpoint in entry.endpoints if _costs(endpoint.price)
    }
    for index, name in enumerate(chat.models):
        if name in priced:
            advice = f'"{name}" is not free; visitors without an account cannot be charged'
            yield Broken(("public_chat", "models", index), advice)


def _costs(price: PriceSettings) -> bool:
    one = price.by_token
    return any((one.prompt, one.completion, one.cached, one.reasoning, one.request))
