"""Variants of a model in the router's catalog, by the end of its id."""

from __future__ import annotations

FREE = ":free"


def is_free(model: str) -> bool:
    """Return true for the id of a model's free variant."""
    return model.endswith(FREE)


def free_name(name: str) -> str:
    """Return the name of the counts of free variants, apart from those of everything else."""
    return f"{name} free"
