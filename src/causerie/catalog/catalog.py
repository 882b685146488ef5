"""The models behind a door: an id or an alias to a model, and the list of all.

``supported_parameters`` is what the validator enforces. Knows nothing of how a
model is run or routed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from causerie.catalog.model import Model
from causerie.errors import NotFound


class Catalog:
    """All models. Ids and aliases are unique (the settings have been checked)."""

    def __init__(self, models: Iterable[Model]) -> None:
        self._models = tuple(models)
        self._by_name = {name: model for model in self._models for name in model.names}

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
