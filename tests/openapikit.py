"""Operations of an OpenAPI document, each tried with all that Schemathesis makes of it.

Schemathesis' own ``parametrize`` makes the cases of all operations while tests are collected, which
takes seconds in every process of a run, and most of them run none of these tests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import casekit
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

from causerie.errors import ServiceError
from causerie.http.openapi import document
from causerie.protocol.known_fields import without_past
from causerie.protocol.parameters import ParsingRules
from causerie.shapes.messages.reader import MESSAGES

_SILENT = {"role": "user", "content": ""}


@cache
def service_document() -> Mapping[str, Any]:
    """Return the document of a service, which several modules look at while they are imported."""
    return document(4096)


def operations(document: Mapping[str, Any]) -> list[str]:
    """Return the method and path of every operation: ``POST /v1/chat/completions``."""
    return [
        f"{method.upper()} {path}" for path, each in document["paths"].items() for method in each
    ]


def judged(body: Any) -> Any:
    """Return the body of a chat with an empty message in place of each past one.

    What is past is mended, which no schema says: the document describes messages as they should be.
    Of a body with items, these and its tools are left out: unknown ones are dropped.
    """
    if isinstance(body, dict) and "input" in body:
        return {name: value for name, value in body.items() if not _is_lenient(name, value)}
    messages = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(messages, list):
        return body
    new = without_past(body)["messages"]
    kept = [one if one or one == old else _SILENT for one, old in zip(new, messages, strict=True)]
    return {**body, "messages": kept}


def _is_lenient(name: str, value: object) -> bool:
    return name in ("input", "tools", "tool_choice") and isinstance(value, list | dict)


def _is_told(body: Any) -> bool:
    """Of Messages, what is mended is told, and what only its own API may know is refused later."""
    if not isinstance(body, dict):
        return False
    try:
        request = MESSAGES.parse(json.dumps(body).encode(), ParsingRules(), {}).request
        request.check_translated()
    except ServiceError:
        return True
    return bool(request.changes)


def _rejects_what_is_new(ctx: Any, response: Any, case: Any) -> bool | None:
    """Check that a wrong request is rejected, unless its past alone is wrong."""
    if judged(case.body) != case.body:
        return None
    if case.path.endswith("/messages") and _is_told(case.body):
        return None
    return negative_data_rejection(ctx, response, case)


_CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    unsupported_method,
    _rejects_what_is_new,
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
        max_examples=casekit.examples(examples),
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: Any) -> None:
        case.call_and_validate(
            base_url=root, checks=_CHECKS, headers=headers, timeout=60, session=session
        )

    return ask
