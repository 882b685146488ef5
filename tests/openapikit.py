"""Operations of an OpenAPI document, each tried with all that Schemathesis makes of it.

Schemathesis' own ``parametrize`` makes the cases of all operations while tests are collected, which
takes seconds in every process of a run, and most of them run none of these tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from schemathesis.checks import load_all_checks
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.python._constants.orchestrator import make_constants_value_source


def operations(document: Mapping[str, Any]) -> list[str]:
    """Return the method and path of every operation: ``POST /v1/chat/completions``."""
    return [
        f"{method.upper()} {path}" for path, each in document["paths"].items() for method in each
    ]


def tried(schema: Any, operation: str, ask: Callable[[Any], None]) -> None:
    """Ask with every case of an operation: those of its corners, and as many as are drawn."""
    method, path = operation.split()
    load_all_checks()
    build_operation_test(
        config=schema.config,
        operation=schema[path][method],
        test_func=ask,
        given_kwargs={},
        feedback=FeedbackSources(constants_value_source=make_constants_value_source(schema)),
    )()
