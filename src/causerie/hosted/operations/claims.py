"""Abilities that a provider's own list of models claims, in the forms that lists have.

Nothing here is measured. A list that says nothing of an ability leaves it unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from causerie.probe.question import dig
from causerie.protocol.parameters import HONOURED

MODALITIES = ("text", "image", "file", "audio", "video")
_PARAMETERS = ("supported_parameters", "claimed_parameters", "supported_sampling_parameters")
_FEATURES = ("supported_features", "features", "capabilities", "tags", "metadata.tags")
_TAKES = ("architecture.input_modalities", "input_modalities", "supported_input_modalities")
_RETURNS = ("architecture.output_modalities", "output_modalities", "supported_output_modalities")
_CREATED = ("created", "created_at", "released")
_FLAGS = {"supports_tools": "tools", "supports_image_input": "vision"}
_ABILITIES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("tools", "tool_use", "tool_calling", "tool_calls", "function_calling", "functions"),
        ("tools", "tool_choice"),
    ),
    **dict.fromkeys(
        ("structured_output", "structured_outputs", "json_mode", "json_schema", "response_format"),
        ("response_format",),
    ),
    **dict.fromkeys(("reasoning", "thinking"), ("reasoning", "reasoning_effort")),
}
_SEES = frozenset({"vision", "image_input", "multimodal", "vlm"})
_MOST = 100  # names of one list
_NEW = timedelta(days=1)  # many servers give the time of the request, or of their own start


def parameters(entry: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the claimed parameters, in order of name; ``None`` if the list says nothing."""
    lists = [found for path in _PARAMETERS if isinstance(found := _at(entry, path), list)]
    features = _features(entry)
    if not lists and not (features & (_ABILITIES.keys() | _SEES)):
        return None
    named = {name for one in lists for name in one[:_MOST] if isinstance(name, str)}
    named |= {name for feature in features for name in _ABILITIES.get(feature, ())}
    return tuple(sorted(named & HONOURED))


def takes(entry: Mapping[str, Any]) -> tuple[str, ...] | None:
    sees = bool(_features(entry) & _SEES)
    found = _modalities(entry, _TAKES, 0)
    return found if not sees else tuple(dict.fromkeys(("text", *(found or ()), "image")))


def returns(entry: Mapping[str, Any]) -> tuple[str, ...] | None:
    return _modalities(entry, _RETURNS, 1)


def created(entry: Mapping[str, Any], now: datetime) -> date | None:
    """Return the day when a model came out; ``None`` if it is not told, or is the present."""
    for name in _CREATED:
        value = entry.get(name)
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


def _modalities(
    entry: Mapping[str, Any], paths: Sequence[str], side: int
) -> tuple[str, ...] | None:
    names: object = next(
        (found for path in paths if isinstance(found := _at(entry, path), list)), None
    )
    arrow = _at(entry, "architecture.modality")
    if names is None and isinstance(arrow, str) and arrow.count("->") == 1:
        names = arrow.split("->")[side].split("+")
    if not isinstance(names, list):
        return None
    return tuple(each for each in MODALITIES if each in names) or None


def _features(entry: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(word.lower().replace("-", "_") for word in _words(entry))


def _words(entry: Mapping[str, Any]) -> Iterator[str]:
    # A list of names, or an object that says yes or no to each.
    for path in _FEATURES:
        found = _at(entry, path)
        if isinstance(found, list):
            yield from (name for name in found[:_MOST] if isinstance(name, str))
        elif isinstance(found, dict):
            for name, value in [*found.items()][:_MOST]:
                if value is True or dig(value, "supported") is True:
                    yield name
    yield from (word for name, word in _FLAGS.items() if entry.get(name) is True)
    if entry.get("type") == "vlm":
        yield "vlm"


def _at(entry: Mapping[str, Any], path: str) -> object:
    found: object = dig(entry, *path.split("."))
    return found
