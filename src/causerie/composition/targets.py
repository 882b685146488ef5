"""Targets: models of our own and models of providers, by the names of routing.

An unchanged target stays the same object across reloads: a model of our own with its loaded
weights and its queue, a model of a provider with the measurements of routing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct, field

from causerie.access.admission import SlotQueue
from causerie.chat.chat import TextChat, TextChatOptions
from causerie.chat.compiler import Compiler
from causerie.chat.embeddings import EmbeddingTarget
from causerie.chat.images import ImageReader
from causerie.chat.parser import Separation
from causerie.chat.rendering import Renderers
from causerie.chat.template import ChatTemplate
from causerie.composition.providers import ConnectedProvider
from causerie.engines.fleet import Fleet, FleetEngine
from causerie.protocol.alike import alike
from causerie.providers.target import ProviderTarget
from causerie.routing.target import Target
from causerie.settings.problems import Problem, SettingsError
from causerie.settings.toml import KeyPath
from causerie.settings.tree import ModelSettings, Settings

_INTERLEAVED = 8  # requests for embeddings whose texts are read in turns


class ChatParts(Struct, frozen=True):
    """Processes shared by our own models, for untrusted grammars, templates and images."""

    grammars: Compiler
    renderers: Renderers
    images: ImageReader = field(default_factory=ImageReader)

    async def stop(self) -> None:
        await self.grammars.stop()
        await self.renderers.stop()
        await self.images.stop()


class OwnModel(Struct, frozen=True):
    engine: FleetEngine
    options: TextChatOptions
    chat: TextChat | EmbeddingTarget
    admission_queue: SlotQueue


class Targets(Struct, frozen=True):
    """All targets of routing: our own models and the models of providers, by name."""

    own: Mapping[str, OwnModel] = {}
    remote: Mapping[str, ProviderTarget] = {}

    def every(self) -> Mapping[str, Target]:
        return {**{name: one.chat for name, one in self.own.items()}, **self.remote}

    def admission_queues(self) -> Mapping[str, SlotQueue]:
        return {id: own.admission_queue for id, own in self.own.items()}

    def waiting(self) -> list[tuple[str, int]]:
        return [(id, own.admission_queue.waiting) for id, own in self.own.items()]

    def is_busy(self, name: str) -> bool:
        if name in self.own:
            return not self.own[name].admission_queue.spares
        return name in self.remote and not self.remote[name].provider.slots.spares


def chat_options(
    settings: Settings, where: Callable[[KeyPath], str] | None = None
) -> Mapping[str, TextChatOptions]:
    """Return the configured options of each model's chat. Reads template files.

    ``where`` gives the place of a setting. Raises :class:`SettingsError` for unusable templates.
    """
    options: dict[str, TextChatOptions] = {}
    problems: list[Problem] = []
    for index, model in enumerate(settings.models):
        place = where(("models", index, "template")) if where is not None else ""
        template = None
        try:
            if model.template is not None:
                template = Path(model.template).read_text(encoding="utf-8")
                _ = ChatTemplate(template, bos_token="", eos_token="")  # raises where it is none
            options[model.id] = alike(TextChatOptions, model, template=template)
        except (OSError, ValueError) as error:
            unread = isinstance(error, OSError | UnicodeDecodeError)
            fault = "cannot be read as UTF-8 text" if unread else "cannot be used"
            words = f"{model.template} {fault}: {error}"
            problems.append(Problem(place, f"models[{index}].template", words))
    if problems:
        raise SettingsError(problems)
    return options


def own_models(
    settings: Settings,
    options: Mapping[str, TextChatOptions],
    engines: Fleet,
    parts: ChatParts,
    before: Targets,
) -> Mapping[str, OwnModel]:
    made: dict[str, OwnModel] = {}
    for model in settings.models:
        kept = before.own.get(model.id)
        engine, wanted = engines.engine(model.id), options[model.id]
        embeds = model.operation == "embeddings"
        if kept is not None and (
            kept.engine != engine or isinstance(kept.chat, EmbeddingTarget) is not embeds
        ):
            kept = None
        queue = kept.admission_queue if kept is not None else _build_admission_queue(model, engines)
        if kept is None or kept.options != wanted:
            chat: TextChat | EmbeddingTarget = EmbeddingTarget(model.id, engine)
            if not embeds:
                renderer = parts.renderers.renderer
                chat = TextChat(
                    engine, parts.grammars, wanted, renderer, queue.reserve, parts.images
                )
            kept = OwnModel(engine, wanted, chat, queue)
        made[model.id] = kept
        queue.max_waiting = model.queue.max_waiting
        queue.max_wait_seconds = model.queue.max_wait_seconds
    return made


def provider_models(
    settings: Settings, providers: Mapping[str, ConnectedProvider], before: Targets
) -> Mapping[str, ProviderTarget]:
    continuing = {
        f"{provider.name}/{model.id}": model.continues
        for provider in settings.providers
        for model in provider.models
    }
    made: dict[str, ProviderTarget] = {}
    for target in settings.targets:
        if target.provider is None or target.name in made:
            continue
        provider = providers[target.provider].provider
        continues = continuing.get(target.name)
        kept = before.remote.get(target.name)
        if kept is None or kept.provider is not provider or kept.probed_continues is not continues:
            separators = Separation(provider.dialect.tag)
            kept = ProviderTarget(
                provider, target.model, separators=separators, continues=continues
            )
        made[target.name] = kept
    return made


def _build_admission_queue(model: ModelSettings, fleet: Fleet) -> SlotQueue:
    engine = fleet.engine(model.id)
    least = _INTERLEAVED if model.operation == "embeddings" else 0
    return SlotQueue(
        model.id,
        lambda: max(engine.slots, least),
        model.queue.max_waiting,
        model.queue.max_wait_seconds,
        lambda: engine.cache_tokens,
    )
