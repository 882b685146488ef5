"""The models behind a door: an id or an alias to a model, and the list of all.

``supported_parameters`` is what the validator enforces. Knows nothing of how a
model is run; what is only known once it is loaded comes through ``profile``.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from causerie.errors import InvalidRequest, NotFound
from causerie.protocol.candidate import Candidate
from causerie.protocol.request import ChatRequest

EFFORTS = ("max", "xhigh", "high", "medium", "low", "minimal", "none")


@dataclass(frozen=True, slots=True)
class Profile:
    """What a model can do. Lengths are in tokens; ``None`` is not known yet."""

    context_length: int | None = None
    max_output_tokens: int | None = None
    images: bool = False
    must_think: bool = False


@dataclass(frozen=True, slots=True)
class Model:
    """One model of the catalog; ``targets`` names who can answer for it, in order."""

    id: str
    name: str
    description: str
    created: int  # Unix seconds
    targets: tuple[Candidate, ...]
    parameters: frozenset[str]
    aliases: tuple[str, ...] = ()
    profile: Callable[[], Profile] = field(default=Profile)

    def entry(self) -> dict[str, Any]:
        """The model as ``GET /models`` shows it."""
        profile = self.profile()
        efforts = [effort for effort in EFFORTS if effort != "none" or not profile.must_think]
        entry: dict[str, Any] = {
            "id": self.id,
            "object": "model",
            "created": self.created,
            "owned_by": "causerie",
            "name": self.name,
            "description": self.description,
            "context_length": profile.context_length,
            "architecture": {
                "input_modalities": ["text", "image"] if profile.images else ["text"],
                "output_modalities": ["text"],
            },
            "pricing": {"prompt": "0", "completion": "0"},
            "supported_parameters": sorted(self.parameters),
            "reasoning": {"supported_efforts": efforts, "mandatory": profile.must_think},
        }
        if profile.max_output_tokens is not None:
            entry["max_output_tokens"] = profile.max_output_tokens
        return entry

    def check(self, request: ChatRequest) -> None:
        """Refuse what this model does not support; raises :class:`InvalidRequest`."""
        for name in sorted(request.params - self.parameters):
            raise InvalidRequest(
                f"The model {self.id} does not support `{name}`; its entry in GET /models lists "
                "what it supports.",
                code="unsupported_parameter",
                param=name,
            )


class Catalog:
    """All models. Ids and aliases are unique (the settings have been checked)."""

    def __init__(self, models: Iterable[Model]) -> None:
        self._models = tuple(models)
        self._by_name = {
            name: model for model in self._models for name in (model.id, *model.aliases)
        }

    def resolve(self, visible: frozenset[str] | None, name: str) -> Model:
        """The model of that id or alias, if it is among ``visible`` (``None``: all).

        Raises :class:`NotFound`, which names the nearest id.
        """
        model = self._by_name.get(name)
        if model is not None and (visible is None or model.id in visible):
            return model
        known = [entry.id for entry in self.visible(visible)]
        close = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {close[0]}?" if close else " GET /models lists those that there are."
        raise NotFound(
            f"There is no model {name[:200]} here.{hint}", code="model_not_found", param="model"
        )

    def visible(self, names: frozenset[str] | None) -> Sequence[Model]:
        """The models among ``names`` (``None``: all), in the configured order."""
        return [model for model in self._models if names is None or model.id in names]
