"""Why a schema, a pattern or a grammar cannot be enforced, and where.

Knows nothing about schemas; it only puts the place and the reason into words.
"""

from __future__ import annotations

from causerie.errors import InvalidRequest


def unsupported(param: str, reason: str, pointer: str | None = None) -> InvalidRequest:
    """Return the 400 for something that would not be enforced as written.

    ``reason`` is a sentence without its subject's place; ``pointer`` is a JSON
    Pointer into the schema, as a fragment (``#/properties/a``).
    """
    if pointer is None:
        return InvalidRequest(reason, code="unsupported_schema", param=param)
    return InvalidRequest(
        f"The schema at {pointer} cannot be enforced: {reason}",
        code="unsupported_schema",
        param=param,
        metadata={"pointer": pointer},
    )


def of_function(name: str, refused: InvalidRequest) -> InvalidRequest:
    """Return the same error, with the name of the function whose parameters it is about."""
    return InvalidRequest(
        f"Parameters of `{name}`: {refused.message}",
        code=refused.code,
        param=refused.param,
        metadata=refused.metadata,
    )


def step(pointer: str, *keys: str | int) -> str:
    """``pointer`` with ``keys`` appended, escaped as JSON Pointers in fragments demand."""
    escaped = (str(key).replace("~", "~0").replace("/", "~1").replace("%", "%25") for key in keys)
    return "/".join((pointer, *escaped))
