"""What the end of a model's id says in the router's catalog."""

from __future__ import annotations

_FREE = ":free"


def is_free(model: str) -> bool:
    """Whether the id is that of a model's free variant."""
    return model.endswith(_FREE)


def free_name(name: str) -> str:
    """How limits are counted of free variants, apart from those of everything else."""
    return f"{name} free"
