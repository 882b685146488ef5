"""Settings of public model names: aliases, prices, the router's catalog and public chat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import astuple

from causerie.protocol.numbers import money
from causerie.settings import values
from causerie.settings.problems import Broken


class TargetSettings(Struct, frozen=True, kw_only=True):
    """A model of a provider, or one that this service runs itself."""

    model: values.Text
    """Id of the model, there or of an entry of `models`."""
    provider: values.DoorName | None = None
    """Name of the provider. Unset: a model that this service runs itself."""

    @property
    def name(self) -> str:
        return self.model if self.provider is None else f"{self.provider}/{self.model}"


class AliasTarget(TargetSettings, frozen=True, kw_only=True):
    """A target of an alias: a model of a provider, or one that this service runs itself."""

    priority: values.Natural = 0
    """0 is asked first; higher ones when no lower one answers."""
    weight: Annotated[float, Meta(gt=0, le=1_000_000)] = 1.0
    """Share of the requests among targets of one priority."""
    price: values.PriceSettings | None = None
    """What the requests that it answers cost, as in [`models.price`](#modelsprice). Unset: the
    alias's price."""


class AliasSettings(Struct, frozen=True, kw_only=True):
    """A public model name, and the targets that answer for it."""

    id: values.ModelPattern
    """What a request names as `model`; with `*` at its end every name that begins so, see
    [wildcards](../guides/doors.md#every-model-of-a-provider)."""
    targets: tuple[AliasTarget, ...]
    name: values.Text | None = None
    """Name for people. Unset: the id."""
    description: str = ""
    """One sentence for the catalog."""
    limits: values.LimitSettings = values.LimitSettings()
    price: values.PriceSettings | None = None
    """As in [`models.price`](#modelsprice). Unset: of a model of ours its own, of a provider's its
    [list price](../guides/billing.md#list-prices); without one nothing."""


class ListPriceSettings(Struct, frozen=True, kw_only=True):
    """Prices that providers publish, for models of theirs that you have set no price for."""

    enabled: bool = True
    """`false`: such models cost nothing."""
    file: values.FilePath | None = None
    """A [price list](../guides/billing.md#list-prices) beside the one of this version; of two rows
    for a model the newer applies. Unset: `prices.csv` in `store.folder`, if it is there."""


# The router's catalog: models by `author/slug`, and the endpoints of each, with their prices.

Slug = Annotated[
    str,
    values.matching(
        r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}/[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}(:(free|extended))?\Z",
        "a name like `author/slug`, with `:free` or `:extended` for a variant",
    ),
]
Quantization = Literal["int4", "int8", "fp4", "fp6", "fp8", "fp16", "bf16", "fp32"]


class CatalogEndpointSettings(TargetSettings, frozen=True, kw_only=True):
    """One that serves a model of the catalog: a provider, or this service itself."""

    price: values.PriceSettings = values.PriceSettings()
    cost: values.PriceSettings | None = None
    """What the provider charged when the model was imported: what later lists of the provider are
    compared with. Nobody is shown or charged it. Unset: not known."""
    context_length: values.Count | None = None
    """Tokens that prompt and output may have. A model that this service runs is held to it; a
    provider keeps to its own. Unset: as a probe found."""
    max_output_tokens: values.Count | None = None
    """Most tokens of a reply; a higher limit of a request is lowered to it. Unset: not known."""
    supported_parameters: tuple[values.Text, ...] | None = None
    """Parameters that it honours here. Unset: as a probe found."""
    claims: values.ClaimSettings | None = None
    """As in [`providers.models.claims`](#providersmodelsclaims). Unset: those of the model at its
    provider."""
    quantization: Quantization | None = None
    """Number type of its weights. Unset: not known."""
    keeps_data: bool = True
    """Whether it may keep what it is sent; such requests can avoid it."""


class CatalogModelSettings(Struct, frozen=True, kw_only=True):
    """A model of the catalog, which the doors of `kind = "router"` offer."""

    id: Slug
    """What a request names as `model`."""
    endpoints: tuple[CatalogEndpointSettings, ...]
    aliases: tuple[values.Name, ...] = ()
    """Other names for it."""
    name: values.Text | None = None
    """Name for people. Unset: the id."""
    description: str = ""
    """A few sentences for the catalog."""
    created: values.Day | None = None
    """When the model came out. Unset: not known, and 0 in `GET /models`."""
    ends: values.Day | None = None
    """Its last day in the catalog. Unset: it stays."""
    limits: values.LimitSettings = values.LimitSettings()


class FreeSettings(Struct, frozen=True, kw_only=True):
    """Limits of each account on its requests to all `:free` models together."""

    requests_per_minute: values.Count = 20
    """Requests per minute."""
    concurrent: values.Count = 4
    """Requests at the same time."""
    requests_per_day: values.Count = 50
    """Requests a day (UTC) of an account with keys in the database."""
    paid_requests_per_day: values.Count = 1000
    """The same for one into which money was put."""
    paid_from: values.Money = "10"
    """How much has to be put in for that."""


class PublicChatSettings(Struct, frozen=True, kw_only=True):
    """Chat on the catalog's pages for visitors without an account; off without `models`."""

    models: tuple[Slug, ...] = ()
    """Ids of the catalog. Each has to be free at all of its endpoints; nothing else can be
    asked."""
    messages_per_day: values.Count = 20
    """Messages of an address (IPv6: of a network of 64 bits) per day, in UTC."""
    total_messages_per_day: values.Count = 1000
    """Messages of all visitors together per day."""
    concurrent: values.Count = 4
    """Replies at the same time. An address has one at a time."""
    max_characters: values.Count = 8000
    """Longest conversation, in characters of all of its messages."""
    max_tokens: values.Count = 512
    """Most tokens of a reply."""


def public_chat_rules(
    chat: PublicChatSettings, catalog: Sequence[CatalogModelSettings]
) -> Iterator[Broken]:
    """Yield a problem for each model of the public chat that has a price in the catalog."""
    priced = {
        entry.id for entry in catalog for endpoint in entry.endpoints if _has_cost(endpoint.price)
    }
    for index, name in enumerate(chat.models):
        if name in priced:
            advice = f'"{name}" is not free; visitors without an account cannot be charged'
            yield Broken(("public_chat", "models", index), advice)


def _has_cost(price: values.PriceSettings) -> bool:
    fields = [field for each in (price, *price.tiers) for field in astuple(each)]
    return any(money(amount) for amount in fields if isinstance(amount, str))
