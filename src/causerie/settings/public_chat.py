"""Chat for visitors without an account: which models, and how much of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from causerie.settings.catalog import CatalogModelSettings, Slug
from causerie.settings.price import PriceSettings
from causerie.settings.problems import Broken
from causerie.settings.values import Count


class PublicChatSettings(Struct, frozen=True, kw_only=True):
    """Chat on the catalog's pages for visitors without an account; off without `models`."""

    models: Annotated[
        tuple[Slug, ...],
        Meta(
            description="Ids of the catalog. Each has to be free at all of its endpoints; nothing "
            "else can be asked."
        ),
    ] = ()
    messages_per_day: Annotated[
        Count,
        Meta(description="Messages of an address (IPv6: of a network of 64 bits) per day, in UTC."),
    ] = 20
    total_messages_per_day: Annotated[
        Count, Meta(description="Messages of all visitors together per day.")
    ] = 1000
    concurrent: Annotated[
        Count, Meta(description="Replies at the same time. An address has one at a time.")
    ] = 4
    max_characters: Annotated[
        Count, Meta(description="Longest conversation, in characters of all of its messages.")
    ] = 8000
    max_tokens: Annotated[Count, Meta(description="Most tokens of a reply.")] = 512


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
