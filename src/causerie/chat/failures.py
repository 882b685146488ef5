"""Engine failures as errors of the interface."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from causerie.engines.base import EngineFailed, LoadFailed, NotAdmitted, PromptTooLong
from causerie.errors import (
    ContextLengthExceeded,
    EngineLost,
    ErrorClass,
    InvalidRequest,
    Overloaded,
    ServiceError,
    UpstreamFailed,
)

log = structlog.get_logger(__name__)

_MOST_WORDS = 200


@contextmanager
def engine_failures(*, started: bool, resumed: str = "") -> Iterator[None]:
    """Raise failures of an engine as ``ServiceError``; ``started``: in the middle of an answer.

    ``resumed`` is what a client has written of the answer.
    """
    try:
        yield
    except PromptTooLong as long:
        raise ContextLengthExceeded(
            prompt_tokens=long.tokens, max_tokens=None, context_length=long.context_length
        ) from None
    except NotAdmitted:
        if resumed:
            raise InvalidRequest(
                "The last message is not the beginning of an answer in the form that is asked for, "
                "so it cannot be continued.",
                param="continue_final_message",
            ) from None
        raise UpstreamFailed(
            "The reply broke off in a form that the constraint here does not admit."
        ) from None
    except EngineFailed as failure:
        raise _in_words(failure, started) from failure


def _in_words(failure: EngineFailed, started: bool) -> ServiceError:
    if failure.refused:
        log.warning("engine refused a request", why=str(failure)[:_MOST_WORDS])
        return UpstreamFailed(
            "The engine does not take this request; the service's log says why.",
            metadata={"upstream_status": 400, "retryable": False},
        ).caused_by(ErrorClass.INVALID_REQUEST)
    wait = max(1, math.ceil(failure.retry_after))
    if failure.loading:
        return Overloaded(
            "The model is being loaded; try again shortly.", code="engine_loading", retry_after=wait
        )
    if isinstance(failure, LoadFailed):
        return Overloaded(
            "The model could not be loaded; the service's log and `/health` say why.",
            code="no_endpoint",
            retry_after=wait,
        ).caused_by(ErrorClass.SERVER_ERROR)
    if started:
        return EngineLost(
            "The engine ended before the answer was complete; it is being restarted.",
            retry_after=wait,
        )
    return Overloaded(
        "The model's engine is not running; it is being restarted.",
        code="no_endpoint",
        retry_after=wait,
    ).caused_by(ErrorClass.SERVER_ERROR)
