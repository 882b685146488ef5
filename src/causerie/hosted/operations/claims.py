"""Abilities that a provider's own list of models claims, in the forms that lists have.

Nothing here is measured. A list that says nothing of an ability leaves it unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from causerie.probe.question import dig
from causerie.protocol.parameters import HONOURED

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


def parameters(entry: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the claimed parameters, in order of name; ``None`` if the list says nothing."""
    listed = [entry.get(name) for name in ("supported_parameters", "claimed_parameters")]
    lists, features = [each for each in listed if isinstance(each, list)], [*_features(entry)]
    if not lists and not features:
        return None
    named = {name for each in lists for name in each if isinstance(name, str)}
    named |= {name for feature in features for name in _ABILITIES[feature]}
    return tuple(sorted(named & HONOURED))


def takes(entry: Mapping[str, Any]) -> tuple[str, ...] | None:
    sees = any(not _ABILITIES[feature] for feature in _features(entry))
    found = _modalities(entry, "input_modalities", 0)
    return tuple(dict.fromkeys(("text", *(found or ()), "image"))) if sees else found


def returns(entry: Mapping[str, Any]) -> tuple[str, ...] | None:
    return _modalities(entry, "output_modalities", 1)


def created(entry: Mapping[str, Any], now: datetime) -> date | None:
    """Return the day when a model came out; ``None`` if it is not told, or is the present."""
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


def _modalities(entry: Mapping[str, Any], name: str, side: int) -> tuple[str, ...] | None:
    arrow = dig(entry, "architecture", "modality")  # like `text+image->text`
    sides = arrow.split("->") if isinstance(arrow, str) else []
    found = (dig(entry, "architecture", name), entry.get(name), entry.get(f"supported_{name}"))
    names = next((each for each in found if isinstance(each, list)), None)
    if names is None and len(sides) == 2:
        names = sides[side].split("+")
    return tuple(each for each in _MODALITIES if each in (names or ())) or None


def _features(entry: Mapping[str, Any]) -> Iterator[str]:
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
