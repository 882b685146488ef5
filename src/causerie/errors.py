"""Every failure that a client can see, with its status, type and code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Self

from msgspec import UNSET, Struct, UnsetType

SHUTDOWN = "shutdown"  # message of a cancellation because the service ends: the client has not left


def counted(number: float, noun: str) -> str:
    """Return a number with its noun, plural unless it is 1: ``1 request``, ``1.5 seconds``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def forget_frames(failure: BaseException) -> None:
    """Drop the frames of a handled failure and its causes.

    A frame may hold the failure and the whole request in a reference cycle.
    """
    one: BaseException | None = failure
    while one is not None:
        one.__traceback__, one = None, one.__context__


class ErrorClass(StrEnum):
    """Cause of a failure at a target, as log lines, metrics, the ledger and alerts name it."""

    REJECTED_KEY = "rejected_key"  # 401, or in words: the configured key is not accepted
    FORBIDDEN = "forbidden"  # 403: the key may not do this there
    MODEL_NOT_FOUND = "model_not_found"  # 404: the provider does not know the model (or the path)
    WRONG_ADDRESS = "wrong_address"  # a redirect, or 405: no chat completions are answered there
    QUOTA = "quota"  # 402, or 429 with `insufficient_quota`: what is paid for is used up
    RATE_LIMITED = "rate_limited"  # 429: too many requests or tokens for now
    OVERLOADED = "overloaded"  # 503 or 529, or the target's own queue: no room for now
    SERVER_ERROR = "server_error"  # another 5xx, or an engine that failed
    TIMEOUT = "timeout"
    CONNECTION = "connection"  # no connection, or one that broke before the reply began
    BROKEN_STREAM = "broken_stream"  # the reply ended before it was complete
    INVALID_REPLY = "invalid_reply"  # the reply cannot be read, or says nothing
    UNUSABLE_OUTPUT = "unusable_output"  # a whole reply, but the model wrote no call of a function
    CONTEXT_LENGTH = "context_length"
    INVALID_REQUEST = "invalid_request"  # the request is refused for what it says

    @property
    def is_rejection(self) -> bool:
        """Return whether only the operator or the provider can remove the cause."""
        return self in _REJECTIONS


_REJECTIONS = frozenset(
    {
        ErrorClass.REJECTED_KEY,
        ErrorClass.FORBIDDEN,
        ErrorClass.MODEL_NOT_FOUND,
        ErrorClass.WRONG_ADDRESS,
        ErrorClass.QUOTA,
    }
)


class ErrorDetails(Struct, frozen=True, kw_only=True):
    """A failure as the body reports it; ``param`` names the field of the request."""

    message: str
    type: str
    param: str | None
    code: str | int  # the status instead of a word, for clients whose generated types demand it
    metadata: Mapping[str, Any] | UnsetType = UNSET


class Error(Struct, frozen=True):
    """The JSON body of a failure."""

    error: ErrorDetails


class ServiceError(Exception):
    """A failure that a client sees; ``headers`` are added to the response."""

    status = 500
    type = "server_error"
    code = "internal_error"
    retryable = False
    error_class: ErrorClass | None = None  # cause of a failure at a target
    changes: Sequence[str] = ()  # made to the request

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        status: int | None = None,
        metadata: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.param = param
        self.status = status or type(self).status
        self.metadata = dict(metadata or {})
        self.headers = dict(headers or {})

    def caused_by(self, error_class: ErrorClass | None) -> Self:
        """Set the error class and return the error; a rejection also forbids a retry."""
        self.error_class = error_class
        if error_class is not None and error_class.is_rejection:
            self.retryable = False
        return self

    def body(self) -> Error:
        return Error(self.error())

    def error(self) -> ErrorDetails:
        """Return the details of the error, as the response body has them."""
        metadata = {"retryable": True, **self.metadata} if self.retryable else self.metadata
        return ErrorDetails(
            message=self.message,
            type=self.type,
            param=self.param,
            code=self.code,
            metadata=metadata or UNSET,
        )


class InvalidRequest(ServiceError):
    """The request itself is wrong; ``param`` names the field, dotted."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_value"
    error_class = ErrorClass.INVALID_REQUEST


class ContextLengthExceeded(InvalidRequest):
    """The prompt, alone or with the output, exceeds the context; LiteLLM parses the message."""

    code = "context_length_exceeded"
    error_class = ErrorClass.CONTEXT_LENGTH

    def __init__(
        self,
        *,
        prompt_tokens: int,
        max_tokens: int | None,
        context_length: int,
        at_least: bool = False,
    ) -> None:
        has = "has at least" if at_least else "has"
        output = counted(max_tokens or 0, "token")
        asked = f", and the request asks for {output} of output" if max_tokens else ""
        super().__init__(
            f"This model's maximum context length is {context_length} tokens; the prompt {has} "
            f"{counted(prompt_tokens, 'token')}{asked}. Shorten the messages or lower "
            "the output limit.",
            param="messages",
            metadata={
                "prompt_tokens": prompt_tokens,
                "max_tokens": max_tokens,
                "context_length": context_length,
            },
        )


class ConstraintNotKept(InvalidRequest):
    """The model found no reply that keeps a constraint of the request; its tokens are charged."""

    code = "constraint_not_kept"


# Agents try a 401 again for minutes, silently, unless the second header says what the official
# clients know by it.
_AUTHENTICATE = {"WWW-Authenticate": "Bearer", "x-should-retry": "false"}


class Unauthenticated(ServiceError):
    """The request has no API key, or one that is unknown, expired or revoked."""

    status = 401
    type = "authentication_error"
    code = "invalid_api_key"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message, code=code, headers=_AUTHENTICATE)


class OverBudget(ServiceError):
    """The budget of the key, person or project is spent."""

    status = 402
    type = "billing_error"
    code = "insufficient_budget"


class Forbidden(ServiceError):
    """The key is good but may not do this."""

    status = 403
    type = "permission_error"
    code = "model_not_allowed"


class NotFound(ServiceError):
    """The model, the path or the configured API entrance (door) does not exist."""

    status = 404
    type = "not_found_error"
    code = "unknown_path"


class RateLimited(ServiceError):
    """The caller has exceeded a rate limit of their own."""

    status = 429
    type = "rate_limit_error"
    code = "requests"
    retryable = True


class InternalError(ServiceError):
    """The service itself has failed; the request id is in the message."""


class TemplateFailed(InternalError):
    """A model's chat template takes too much time or memory; another model may serve."""

    code = "template_failed"

    def __init__(self, model: str, reason: str) -> None:
        super().__init__(
            f"The chat template of {model!r} cannot be used: {reason}. The template comes with "
            "the model or its `template` setting; whoever runs this service must replace it."
        )


class UpstreamFailed(ServiceError):
    """Everything that could serve the request was tried and failed."""

    status = 502
    type = "upstream_error"
    code = "bad_gateway"
    retryable = True
    error_class = ErrorClass.INVALID_REPLY


class UnusableOutput(UpstreamFailed):
    """The model wrote an invalid call, which a request can cause: the target is not to blame."""

    error_class = ErrorClass.UNUSABLE_OUTPUT


class EngineLost(UpstreamFailed):
    """An engine of ours ended during the request and is restarted."""

    status = 503
    type = "overloaded_error"
    code = "no_endpoint"
    error_class = ErrorClass.SERVER_ERROR

    def __init__(self, message: str, *, retry_after: int = 1) -> None:
        super().__init__(message, headers={"Retry-After": str(retry_after)})


class Overloaded(ServiceError):
    """The request is valid but cannot be served now; ``retry_after`` is in seconds."""

    status = 503
    type = "overloaded_error"
    code = "queue_full"
    retryable = True
    error_class = ErrorClass.OVERLOADED

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        retry_after: int = 1,
        metadata: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(
            message, code=code, metadata=metadata, headers={"Retry-After": str(retry_after)}
        )


class StoreUnavailable(Overloaded):
    """The database cannot be reached, so the status is 503, and never 401."""

    code = "store_unavailable"

    def __init__(self, message: str = "") -> None:
        usual = "The service cannot reach its database now; nothing was changed. Try again."
        super().__init__(message or usual, retry_after=2)
