"""Operations of an OpenAPI document, each tried with all that Schemathesis makes of it.

Schemathesis' own ``parametrize`` makes the cases of all operations while tests are collected, which
takes seconds in every process of a run, and most of them run none of these tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import requests
from hypothesis import HealthCheck, settings
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.python._constants.orchestrator import make_constants_value_source
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

_CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    unsupported_method,
    negative_data_rejection,
]


def operations(document: Mapping[str, Any]) -> list[str]:
    """Return the method and path of every operation: ``POST /v1/chat/completions``."""
    return [
        f"{method.upper()} {path}" for path, each in document["paths"].items() for method in each
    ]


def tried(
    schema: Any,
    operation: str,
    root: str,
    *,
    examples: int,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Ask a server with every case of an operation: those of its corners, and drawn ``examples``.

    They share a connection, for which no proxy of the environment is looked up.
    """
    method, path = operation.split()
    load_all_checks()
    with requests.Session() as session:
        session.trust_env = False
        build_operation_test(
            config=schema.config,
            operation=schema[path][method],
            test_func=_asking(session, root, dict(headers or {}), examples),
            given_kwargs={},
            feedback=FeedbackSources(constants_value_source=make_constants_value_source(schema)),
        )()


def _asking(
    session: requests.Session, root: str, headers: dict[str, str], examples: int
) -> Callable[[Any], None]:
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: Any) -> None:
        case.call_and_validate(
            base_url=root, checks=_CHECKS, headers=headers, timeout=60, session=session
        )

    return ask
