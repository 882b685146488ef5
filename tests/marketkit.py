"""A public catalog made up of real entries, with a day behind them."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from accountkit import World
from consolekit import Place, console_of
from msgspec import structs
from pageskit import Shop

from causerie.catalog.catalog import Catalog, DoorCatalog
from causerie.catalog.endpoint import CatalogEndpoint
from causerie.catalog.listing import Listing
from causerie.catalog.model import (
    ModelCard,
    ModelProfile,
    ProviderClaims,
    Tariff,
)
from causerie.hosted.console.public_chat import PublicChatOptions
from causerie.protocol.targets import (
    DAY_SECONDS,
    QUARTER_SECONDS,
    UNKNOWN_STATS,
    Candidate,
    Figure,
    Figures,
    Percentiles,
    TargetStats,
    TimeBucket,
)

_MILLION = Decimal(1_000_000)
FREE = "qwen/qwen3-8b:free"
PLAIN = frozenset({"max_tokens", "temperature", "top_p", "stop", "seed"})
TOOLS = PLAIN | {"tools", "tool_choice", "response_format", "structured_outputs"}
THINKS = TOOLS | {"reasoning", "reasoning_effort", "include_reasoning", "logprobs"}


def endpoint(
    provider: str,
    prompt: str,
    completion: str,
    *,
    model: str = "m",
    cached: str | None = None,
    thinking: str | None = None,
    request: str = "0",
    context: int | None = 32_768,
    output: int | None = None,
    images: bool = False,
    parameters: frozenset[str] | None = TOOLS,
    probed: date | None = None,
    quantization: str | None = None,
    private: bool = False,
    claims: ProviderClaims = ProviderClaims(),  # noqa: B008 - frozen
) -> CatalogEndpoint:
    """One endpoint's offer; prices are per 1M tokens."""
    profile = ModelProfile(context, output, images)
    return CatalogEndpoint(
        Candidate(f"{provider}/{model}"),
        parameters,
        lambda: profile,
        provider=provider,
        claims=claims,
        tariff=Tariff(
            Decimal(prompt) / _MILLION,
            Decimal(completion) / _MILLION,
            None if cached is None else Decimal(cached) / _MILLION,
            Decimal(request),
            None if thinking is None else Decimal(thinking) / _MILLION,
        ),
        quantization=quantization,
        private=private,
        probed=probed,
    )


@dataclass
class ScriptedMarket:
    """A catalog whose figures the test says, by target."""

    cards: Sequence[tuple[ModelCard, Sequence[CatalogEndpoint], date | None]]
    figures: dict[str, TargetStats] = field(default_factory=dict)
    days: dict[str, Sequence[TimeBucket]] = field(default_factory=dict)
    by_day: dict[str, Sequence[TimeBucket]] = field(default_factory=dict)
    prefix: str = "/router/v1"
    _made: tuple[object, object, Catalog] | None = None

    def entries(self) -> Sequence[Listing]:
        return [
            Listing(card, tuple(endpoints), self.figures.get, self.figures_of, ends)
            for card, endpoints, ends in self.cards
        ]

    def figures_of(self, target: str) -> Figures:
        stats = self.figures.get(target, UNKNOWN_STATS)
        first, speed = stats.first_token, stats.speed
        return Figures(
            None if first is None else Figure(first.p50, "5 minutes"),
            None if speed is None else Figure(speed.p50, "5 minutes"),
            stats.uptime_day,
        )

    def catalog(self) -> DoorCatalog:
        """Return the catalog, which is made once of the same cards and figures, as a service's."""
        cards, figures, made = self._made or (None, None, None)
        if made is None or cards is not self.cards or figures is not self.figures:
            made = Catalog(self.entries())
            self._made = self.cards, self.figures, made
        ids = frozenset(card.id for card, _, _ in self.cards)
        history = self.days
        return DoorCatalog(
            self.prefix,
            ids,
            made,
            lambda target: history.get(target, ()),
            lambda *targets: [one for each in targets for one in self.by_day.get(each, ())],
        )


class Fair(Shop):
    """A service with a router's door."""

    def __init__(self, market: ScriptedMarket) -> None:
        super().__init__()
        self.fair: ScriptedMarket | None = market

    def market(self) -> DoorCatalog | None:
        return self.fair.catalog() if self.fair is not None else None


def card(id: str, name: str = "", about: str = "", day: date = date(2026, 3, 1)) -> ModelCard:
    """Words for people."""
    created = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
    return ModelCard(id, name or id, about, created)


def target_stats(
    latency: float, speed: float, uptime: float = 1.0, *, up: bool = True
) -> TargetStats:
    """Figures around a median."""
    waits = Percentiles(latency, latency * 1.3, latency * 1.9, latency * 3)
    speeds = Percentiles(speed, speed * 1.1, speed * 1.2, speed * 1.3)
    return TargetStats(
        up=up,
        first_token=waits,
        speed=speeds,
        first_token_half_hour=waits,
        speed_half_hour=speeds,
        uptime=uptime,
        uptime_half_hour=uptime,
        uptime_day=uptime,
    )


def day(now: datetime, latency: float, speed: float, ill: range = range(0)) -> list[TimeBucket]:
    """A day of one endpoint; in quarters of ``ill`` it failed half of the time."""
    last = int(now.timestamp()) // QUARTER_SECONDS
    made = []
    for n in range(96):
        if n % 37 == 5:
            continue
        wave = 1 + 0.25 * math.sin(n / 9) + 0.06 * math.sin(n * 2.3)
        bad = 40 if n in ill else int(n % 41 == 7)
        made.append(
            TimeBucket(
                (last - 95 + n) * QUARTER_SECONDS, 80 - bad, bad, latency * wave, speed / wave
            )
        )
    return made


def small_market(now: datetime) -> ScriptedMarket:
    """A few models of every look."""
    north = endpoint(
        "north", "0.05", "0.2", cached="0.0125", parameters=THINKS, output=8192, context=131_072,
        probed=date(2026, 11, 2), quantization="fp8", model="Qwen/Qwen3-8B",
    )  # fmt: skip
    south = endpoint("south", "0.04", "0.25", parameters=TOOLS, probed=date(2026, 11, 9))
    west = endpoint(
        "west",
        "0.055",
        "0.22",
        parameters=None,
        private=True,
        claims=ProviderClaims(TOOLS, ("text", "image"), ("text",)),
    )
    free = endpoint("causerie", "0", "0", context=8192, model="qwen3-8b-here")
    vision = endpoint(
        "north", "2.5", "10", thinking="5", images=True, context=1_048_576, model="iris"
    )
    per_request = endpoint("east", "0.1", "0.1", request="0.002", parameters=PLAIN, context=4096)
    unknown = endpoint("south", "1", "3", context=None, parameters=None, model="mystery")
    claimed = endpoint(
        "west",
        "0.0631125",
        "1.63625",
        model="meta-llama/llama-3.1-405b-instruct",
        parameters=None,
        context=131_072,
        claims=ProviderClaims(THINKS, ("text", "image")),
    )
    cards = [
        (
            card(
                "qwen/qwen3-8b", "Qwen3 8B",
                "A dense model of eight billion parameters that thinks when it is asked to, "
                "calls tools, and speaks a hundred languages.", date(2025, 4, 28),
            ),
            [north, south, west], None,
        ),
        (card("qwen/qwen3-8b:free", "Qwen3 8B (free)", "For trying it out."), [free], None),
        (card("acme/iris-large", "Iris Large", "Sees images.", date(2026, 9, 1)), [vision], None),
        (
            card("acme/old-timer", "Old Timer", "Small, plain, and going.", date(2024, 2, 2)),
            [per_request], date(2999, 1, 1),
        ),
        (card("zeta/mystery"), [unknown], None),
        (card("meta-llama/llama-3.1-405b-instruct"), [claimed], None),
    ]  # fmt: skip
    figures = {
        north.name: target_stats(0.31, 92.0, 0.998),
        south.name: target_stats(0.92, 41.0, 0.93),
        west.name: target_stats(0.55, 63.0, 1.0),
        vision.name: target_stats(1.4, 55.0, 0.87, up=False),
        claimed.name: structs.replace(target_stats(0.7, 30.0, 0.6), degraded=True),
    }
    days = {
        north.name: day(now, 0.31, 92.0),
        south.name: day(now, 0.92, 41.0, range(50, 58)),
        west.name: day(now, 0.55, 63.0, range(20, 22)),
    }
    by_day = {
        north.name: quarter_of_a_year(now, range(30, 33)),
        west.name: quarter_of_a_year(now, range(80, 90))[40:],
    }
    return ScriptedMarket(cards, figures, days, by_day)


def quarter_of_a_year(now: datetime, ill: range) -> list[TimeBucket]:
    """Ninety days; on those of ``ill`` a tenth failed or more."""
    last = int(now.timestamp()) // DAY_SECONDS
    return [
        TimeBucket((last - 89 + n) * DAY_SECONDS, 1000, 100 + 9 * n if n in ill else 2, None, None)
        for n in range(90)
        if n % 23 != 7
    ]


LLAMA = "meta-llama/llama-3.1-405b-instruct"
UGLY = (
    (LLAMA, "Llama 3.1 405B Instruct"),
    ("nousresearch/deephermes-3-mistral-24b-preview", "DeepHermes 3 Mistral 24B Preview"),
    ("qwen/qwen3-vl-235b-a22b-thinking-2507", "Qwen3 VL 235B A22B Thinking 2507"),
    ("cognitivecomputations/dolphin-mistral-24b-venice-edition", "Uncensored Dolphin Venice"),
)
"""Models whose names and prices are as long as those of a real catalog."""
UGLY_PROVIDERS = ("deepinfra", "brightgpu-eu-west", "fireworks-ai", "together", "gale", "novita")


def ugly_market(now: datetime) -> ScriptedMarket:
    """The small market, and models with the names, prices and endpoints of a real catalog."""
    made = small_market(now)
    cards = [each for each in made.cards if each[0].id != LLAMA]
    for id, name in UGLY:
        offered = [
            endpoint(
                provider, f"0.0{631125 + n * 977}", f"1.{63625 + n * 311}", cached="0.0081875",
                thinking="2.0631125", model=id, parameters=THINKS, context=131_072,
                output=16_384, probed=date(2026, 11, 2), quantization="fp8", private=n % 2 == 0,
            )
            for n, provider in enumerate(UGLY_PROVIDERS)
        ]  # fmt: skip
        about = (
            f"{name} follows instructions, calls tools and reads a hundred languages, at length."
        )
        cards.append((card(id, name, about, date(2026, 7, 23)), offered, None))
        for n, each in enumerate(offered):
            ill = range(0) if n else range(20, 80)
            made.figures[each.name] = target_stats(0.0314 * (n + 1), 623.4 - 90 * n, 1 - n * 0.06)
            made.days[each.name] = day(now, 0.3 + n / 10, 60.0, ill)
    return ScriptedMarket(cards, made.figures, made.days, made.by_day)


_WORDS = (
    "Swift",
    "Amber",
    "Lumen",
    "Cobalt",
    "Fern",
    "Vesper",
    "Quartz",
    "Harbor",
    "Tundra",
    "Reed",
)


def large_market(count: int) -> ScriptedMarket:
    """So many models, two endpoints each."""
    cards = []
    for n in range(count):
        name = f"{_WORDS[n % 10]} {_WORDS[n // 10 % 10]} {n}"
        both = [
            endpoint(
                f"provider-{(n + k) % 23}", f"{(n * 7 + k) % 90 / 20 + 0.01:.2f}",
                f"{(n * 11 + k) % 200 / 10 + 0.02:.2f}", model=f"m{n}",
                parameters=(PLAIN, TOOLS, THINKS)[n % 3], context=4096 << n % 9,
                images=n % 5 == 0,
            )
            for k in (0, 1)
        ]  # fmt: skip
        about = f"{name} answers questions about the {n}th thing, in a sentence or in two."
        made = card(f"author-{n % 40}/model-{n}", name, about, date(2025, 1 + n % 12, 1 + n % 28))
        cards.append((made, both, None))
    return ScriptedMarket(cards)


@pytest.fixture
async def fair(lite: World) -> AsyncIterator[Place]:
    """A console with a public catalog of a few models, rankings, and a model to chat with."""
    view, chat = Fair(small_market(lite.now)), PublicChatOptions(frozenset({FREE}))
    async with console_of(lite, service_view=view, rankings=True, chat=chat) as served:
        yield served


def market_of(place: Place) -> ScriptedMarket:
    """Of a console that has one."""
    assert isinstance(place.service_view, Fair)
    assert place.service_view.fair is not None
    return place.service_view.fair
