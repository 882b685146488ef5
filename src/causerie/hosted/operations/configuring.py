"""Trials of providers with the lists of their models, and the interface to the configuration."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta, Struct, structs

from causerie.errors import ServiceError
from causerie.hosted.accounts.people import Actor
from causerie.hosted.accounts.records import EntryKind
from causerie.probe.question import dig
from causerie.probe.questions.listing import listed_length
from causerie.protocol.events import ReasoningDelta, TextDelta
from causerie.protocol.numbers import money
from causerie.protocol.parameters import HONOURED, ParsingRules
from causerie.providers.provider import Provider
from causerie.providers.target import ProviderTarget
from causerie.shapes.chat_completions.reader import parse

_LIST_SECONDS = 10.0
_MOST_MODELS = 2000
_LONGEST_WORDS = 300
_LONGEST_DESCRIPTION = 500
_TOKENS = 32
_OUTPUTS = (
    ("max_output_tokens",),
    ("top_provider", "max_completion_tokens"),
    ("max_completion_tokens",),
    ("max_output_length",),
)
PRICE_PARTS = ("prompt", "completion", "cached", "reasoning", "request")


class ListedModel(Struct, frozen=True, kw_only=True):
    """A model in a provider's list; what is not published is ``null``."""

    id: str
    name: str | None = None
    context_length: int | None = None
    max_output_tokens: int | None = None
    prompt_price: str | None = None
    completion_price: str | None = None
    cached_price: str | None = None
    reasoning_price: str | None = None
    request_price: str | None = None
    description: str | None = None
    created: date | None = None
    supported_parameters: tuple[str, ...] | None = None
    input_modalities: tuple[str, ...] | None = None
    output_modalities: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Raise :class:`ValueError` for a wrong price."""
        for part in PRICE_PARTS:
            if (price := getattr(self, f"{part}_price")) is not None:
                money(price)


class TrialStep(Struct, frozen=True, kw_only=True):
    """Outcome of one request of a trial."""

    ok: bool
    seconds: float
    first_token_seconds: float | None = None
    problem: str = ""


class Trial(Struct, frozen=True, kw_only=True):
    """Outcome of a trial with `model`, which is empty if there is none."""

    models: tuple[ListedModel, ...]
    model: str
    listing: TrialStep
    completion: TrialStep | None = None
    stream: TrialStep | None = None


async def trial(provider: Provider, key: str, model: str = "") -> Trial:
    """Request a provider's list, a completion and a stream; the result never contains its key."""
    provider.candid = True
    listed = await list_models(provider, key)
    model = model or next((one.id for one in listed.models), "")
    if not model:
        return listed
    completion = await _run_chat_trial(provider, model, key, stream=False)
    stream = await _run_chat_trial(provider, model, key, stream=True)
    return structs.replace(listed, model=model, completion=completion, stream=stream)


async def list_models(provider: Provider, key: str) -> Trial:
    began = time.monotonic()
    try:
        found = await provider.listing(_LIST_SECONDS)
    except ServiceError as failure:
        return Trial(models=(), model="", listing=_build_failed_step(failure, began, key))
    step = TrialStep(ok=True, seconds=time.monotonic() - began)
    return Trial(models=published(found), model="", listing=step)


async def _run_chat_trial(provider: Provider, model: str, key: str, *, stream: bool) -> TrialStep:
    fields = {
        "model": model,
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": _TOKENS,
        "stream": stream,
    }
    request = parse(msgspec.json.encode(fields), ParsingRules())
    began, first = time.monotonic(), None
    try:
        async with ProviderTarget(provider, model).generate(request) as reply:
            async for batch in reply.events:
                text = [each for each in batch if isinstance(each, TextDelta | ReasoningDelta)]
                if first is None and any(each.text for each in text):
                    first = time.monotonic() - began
    except ServiceError as failure:
        return _build_failed_step(failure, began, key)
    seconds = time.monotonic() - began
    if first is None:
        return TrialStep(ok=False, seconds=seconds, problem="The reply holds no text.")
    return TrialStep(ok=True, seconds=seconds, first_token_seconds=first if stream else None)


def _build_failed_step(failure: ServiceError, start: float, api_key: str) -> TrialStep:
    words = failure.message
    if (status := failure.metadata.get("upstream_status")) is not None:
        words = f"Status {status}: {words}"
    if api_key:
        words = words.replace(api_key, "[key]")
    return TrialStep(ok=False, seconds=time.monotonic() - start, problem=words[:_LONGEST_WORDS])


def published(entries: Sequence[Mapping[str, Any]]) -> tuple[ListedModel, ...]:
    """Return the models of a provider's list, as far as it can be read."""
    return tuple(_build_listed_model(each) for each in entries[:_MOST_MODELS])


def _build_listed_model(entry: Mapping[str, Any]) -> ListedModel:
    pricing = entry.get("pricing")
    prices = pricing if isinstance(pricing, dict) else {}
    return ListedModel(
        id=str(entry["id"])[:_LONGEST_WORDS],
        name=_shorten_text(entry.get("name", entry.get("display_name")), _LONGEST_WORDS),
        context_length=listed_length(entry),
        max_output_tokens=next(
            (n for at in _OUTPUTS if type(n := dig(entry, *at)) is int and n > 0), None
        ),
        prompt_price=_price_text_per_million(prices.get("prompt")),
        completion_price=_price_text_per_million(prices.get("completion")),
        cached_price=_price_text_per_million(prices.get("input_cache_read"), above_zero=True),
        reasoning_price=_price_text_per_million(prices.get("internal_reasoning"), above_zero=True),
        request_price=_price_text_per_million(prices.get("request"), 1, above_zero=True),
        description=_shorten_text(entry.get("description"), _LONGEST_DESCRIPTION),
        created=_read_past_release_date(entry, datetime.now(UTC)),
        supported_parameters=_read_claimed_parameters(entry),
        input_modalities=_read_input_modalities(entry),
        output_modalities=_read_modalities(entry, "output_modalities", 1),
    )


def _shorten_text(text: object, max_length: int) -> str | None:
    if not isinstance(text, str) or not text.strip():
        return None
    words = " ".join(text.split())
    return words if len(words) <= max_length else words[:max_length].rpartition(" ")[0] + " …"


def _price_text_per_million(
    published_price: object, multiplier: int = 1_000_000, *, above_zero: bool = False
) -> str | None:
    # Lists publish prices by token, and 0 also for what has no price of its own.
    if not isinstance(published_price, str):
        return None
    try:
        amount = money(money(published_price) * multiplier)
    except ValueError:
        return None
    return f"{amount.normalize():f}" if amount or not above_zero else None


Settings = dict[str, Any]


class EntryView(Struct, frozen=True, kw_only=True):
    """An entry of the configuration. One of the file is locked, and has no `id`."""

    id: str
    kind: EntryKind
    name: str
    origin: Literal["file", "database"]
    locked: bool
    where: str = ""
    enabled: bool
    in_force: bool
    problems: tuple[str, ...] = ()
    settings: Settings
    has_key: bool
    version: int = 1
    created_at: datetime | None = None
    created_by: str = ""
    updated_at: datetime | None = None
    updated_by: str = ""


EntryKey = Annotated[str, Meta(max_length=4096)]


class EntryWish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Wanted state of an entry; ``key``: unset keeps the stored one, empty removes it."""

    settings: Settings
    key: EntryKey | None = None
    enabled: bool = True
    version: Annotated[int, Meta(ge=1, le=2**53 - 1)] | None = None
    """Version of the entry that was read; unset: any."""


class EntryStep(Struct, frozen=True, kw_only=True):
    """One of several changes: without ``id`` a new entry, without ``wish`` a deletion."""

    kind: EntryKind
    id: str = ""
    wish: EntryWish | None = None


class TestProvider(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A provider to test: one with these settings, or an existing one by its `entry` or `filed`."""

    settings: Settings = {}
    key: EntryKey = ""
    model: Annotated[str, Meta(max_length=300)] = ""
    entry: Annotated[str, Meta(max_length=64)] = ""
    filed: Annotated[str, Meta(max_length=64)] = ""


class Configuring(Protocol):
    """Changes of the configuration by operators, in force when a method returns.

    Every method raises ``Forbidden``, ``NotFound``, and ``InvalidRequest`` with all problems.
    ``every`` returns the entries by kind: those of the file, then the others, oldest first.
    ``apply`` makes all changes or none.
    """

    async def every(self, actor: Actor) -> Sequence[EntryView]: ...
    async def see(self, actor: Actor, id: str) -> EntryView: ...  # of the database
    async def create(self, actor: Actor, kind: EntryKind, wish: EntryWish) -> EntryView: ...
    async def change(self, actor: Actor, id: str, wish: EntryWish) -> EntryView: ...
    async def switch(self, actor: Actor, id: str, *, enabled: bool) -> EntryView: ...
    async def delete(self, actor: Actor, id: str) -> None: ...
    async def apply(self, actor: Actor, steps: Sequence[EntryStep]) -> None: ...
    async def listed(self, actor: Actor, provider: str) -> Trial: ...  # of one in force
    async def test(self, actor: Actor, wanted: TestProvider) -> Trial: ...


_MODALITIES = ("text", "image", "file", "audio", "video")
_CREATED = ("created", "created_at", "released")
_TOOLS, _FORMAT = ("tools", "tool_choice"), ("response_format",)
_ABILITIES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("tools", "tool_use", "tool_calling", "function_calling"), _TOOLS),
    **dict.fromkeys(("structured_output", "structured_outputs", "json_mode"), _FORMAT),
    **dict.fromkeys(("json_schema", "response_format"), _FORMAT),
    **dict.fromkeys(("reasoning", "thinking"), ("reasoning", "reasoning_effort")),
    **dict.fromkeys(("vision", "image_input", "multimodal", "vlm"), ()),  # they take images
}
_NEW = timedelta(days=1)  # many servers give the time of the request, or of their own start


def _read_claimed_parameters(entry: Mapping[str, Any]) -> tuple[str, ...] | None:
    listed = [entry.get(name) for name in ("supported_parameters", "claimed_parameters")]
    lists, features = (
        [each for each in listed if isinstance(each, list)],
        [*_list_claimed_abilities(entry)],
    )
    if not lists and not features:
        return None
    named = {name for each in lists for name in each if isinstance(name, str)}
    named |= {name for feature in features for name in _ABILITIES[feature]}
    return tuple(sorted(named & HONOURED))


def _read_input_modalities(entry: Mapping[str, Any]) -> tuple[str, ...] | None:
    sees = any(not _ABILITIES[feature] for feature in _list_claimed_abilities(entry))
    found = _read_modalities(entry, "input_modalities", 0)
    return tuple(dict.fromkeys(("text", *(found or ()), "image"))) if sees else found


def _read_past_release_date(entry: Mapping[str, Any], now: datetime) -> date | None:
    for value in map(entry.get, _CREATED):
        try:
            if isinstance(value, str):
                moment = datetime.fromisoformat(value)
                moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            elif type(value) is int and value > 0:
                moment = datetime.fromtimestamp(value, UTC)
            else:
                continue
        except (ValueError, OverflowError, OSError):
            continue
        if moment < now - _NEW:
            return moment.date()
    return None


def _read_modalities(entry: Mapping[str, Any], field: str, side: int) -> tuple[str, ...] | None:
    arrow = dig(entry, "architecture", "modality")  # like `text+image->text`
    sides = arrow.split("->") if isinstance(arrow, str) else []
    found = (dig(entry, "architecture", field), entry.get(field), entry.get(f"supported_{field}"))
    names = next((each for each in found if isinstance(each, list)), None)
    if names is None and len(sides) == 2:
        names = sides[side].split("+")
    return tuple(each for each in _MODALITIES if each in (names or ())) or None


def _list_claimed_abilities(entry: Mapping[str, Any]) -> Iterator[str]:
    # A list of names, or an object that says yes or no to each.
    told: list[object] = [entry.get("type")]
    told += [name.removeprefix("supports_") for name, yes in entry.items() if yes is True]
    for name in ("supported_features", "features", "capabilities", "tags"):
        found = entry.get(name)
        if isinstance(found, dict):
            told += [name for name, yes in found.items() if (dig(yes, "supported") or yes) is True]
        elif isinstance(found, list):
            told += found
    words = (word.lower().replace("-", "_") for word in told if isinstance(word, str))
    yield from (word for word in words if word in _ABILITIES)
