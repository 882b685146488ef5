"""Prompts of about a length, each unlike the others, so that no cache knows them."""

from __future__ import annotations

import random

_WORDS = """
amber anchor autumn basket beacon bridge candle canyon castle cedar cellar circle copper
corner cotton dancer desert dinner dragon ember engine fabric falcon feather finger forest
garden ginger glacier hammer harbor hollow honey island jacket jungle kettle ladder lantern
lemon letter marble meadow mirror morning needle ocean orange orchard paper pepper pillow
planet pocket prairie quarry rabbit ribbon river saddle sailor shadow silver spider spring
summer temple thunder timber tunnel valley velvet village violin walnut water window winter
""".split()  # noqa: SIM905 - to be read
_ASKING = "Write a long story, without an end, in which all of these occur:"
_ASKING_TOKENS = 20


def prompt(number: int, tokens: int) -> str:
    """Return the prompt of that number; with most vocabularies it has about that many tokens."""
    chosen = random.Random(number).choices(_WORDS, k=max(tokens - _ASKING_TOKENS, 1))
    return f"{' '.join(chosen)}\n\n{_ASKING} the words above, and the number {number}."
