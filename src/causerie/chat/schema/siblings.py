"""Rules next to a ``$ref``, which the drafts up to 7 ignore and later ones apply."""

from __future__ import annotations

import re
from collections.abc import Mapping

from causerie.chat.schema.addresses import BY_NAME, DATA, DEEPEST
from causerie.chat.schema.keywords import is_rule

_IGNORES = re.compile(r"https?://json-schema\.org/draft-0[3467]/(?:hyper-)?schema#?")
_KEPT = frozenset({"$ref", "$id"})


def without_siblings(schema: Mapping[str, object]) -> tuple[Mapping[str, object], list[str]]:
    """Return what a schema says by the draft that its ``$schema`` names, without that name, and the
    keywords that say nothing there. A schema of a later draft is returned as it is.
    """
    named = schema.get("$schema")
    if not isinstance(named, str) or not _IGNORES.fullmatch(named):
        return schema, []
    ignored: dict[str, None] = {}
    unnamed = {key: value for key, value in schema.items() if key != "$schema"}
    cut = _cut(unnamed, ignored, 0, by_name=False)
    assert isinstance(cut, Mapping)
    return cut, [*ignored]


def _cut(value: object, ignored: dict[str, None], depth: int, *, by_name: bool) -> object:
    """Return a part without them; the keys of a part ``by_name`` are no keywords."""
    if depth > DEEPEST:
        return value
    if isinstance(value, list):
        return [_cut(item, ignored, depth + 1, by_name=False) for item in value]
    if not isinstance(value, Mapping):
        return value
    refers = not by_name and isinstance(value.get("$ref"), str)
    out: dict[str, object] = {}
    for key, of in value.items():
        if refers and key not in _KEPT and is_rule(key):
            ignored[key] = None
        elif not by_name and key in DATA:
            out[key] = of
        else:
            out[key] = _cut(of, ignored, depth + 1, by_name=not by_name and key in BY_NAME)
    return out
