"""Faults of a provider, and their place in its reply."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from faultkit.reply import Reply

BEFORE_HEAD = -1
BEFORE_FIRST = 0  # the head is out, and in a stream the chunk with the role
_IN_THE_MIDDLE = 2


class Fault(Enum):
    """The first group lies in the address: it is the same for every request.

    The second breaks a reply off at a position, the third is an answer of the
    wrong kind, the fourth a complete reply with something odd about it.
    """

    REFUSE = "nobody listens"
    DNS_FAILURE = "the host's name does not exist"
    TLS_SELF_SIGNED = "a certificate that nobody has signed"
    TLS_WRONG_NAME = "a good certificate for another name"
    TLS_PLAIN_TEXT = "plain HTTP at an https:// address"

    RESET = "the connection is reset before the head"
    RESET_MID_STREAM = "the connection is reset in the middle"
    CLOSE = "the connection is closed before the head"
    HANG = "accepted, then silence"
    STALL_BEFORE_FIRST = "a head, then silence"
    STALL_MID_STREAM = "some content, then silence"
    CUT_MID_CHUNK = "closed inside a chunk of the transfer"
    CUT_MID_UTF8 = "a complete body that ends inside a character"
    HALF_CLOSED = "the sending side is closed in the middle, the other one stays open"
    GARBAGE_JSON = "JSON that breaks off, in a reply that goes on"
    ERROR_IN_STREAM = "an error as an event of the stream"
    ENDLESS = "content without end"

    SLOW_HEADERS = "a head that drips in, a byte at a time"
    NOT_HTTP = "an answer in another protocol"
    HTML_ERROR_PAGE = "a bad status with a page for people"
    ERROR_IN_200 = "status 200 with an error as its body"
    TOO_MANY = "429 without a word when to come back"
    TOO_MANY_SECONDS = "429 with Retry-After in seconds"
    TOO_MANY_DATE = "429 with Retry-After as a date"
    SERVER_ERROR = "5xx with an error as JSON"
    REDIRECT = "307 to another path"

    WRONG_CONTENT_TYPE = "a good reply that calls itself text/plain"
    NOT_STREAMED = "a whole reply where a stream was asked for"
    TWO_DONE = "[DONE] twice"
    NO_DONE = "a complete stream without [DONE]"
    NO_FINISH = "[DONE] without a finish_reason"
    USAGE_MISSING = "no usage at all"
    USAGE_WITH_CHOICES = "usage in the chunk with the finish_reason"
    COMMENTS = "comments that keep the connection alive"
    CRLF = "lines that end in CR LF"
    HUGE_CHUNK = "one event of several megabytes"
    WRONG_MODEL = "another model's name"
    CLOSES_IDLE = "a complete reply, then the kept connection is closed"

    @property
    def in_address(self) -> bool:
        """Return true if it needs no request."""
        return self in _ADDRESS

    @property
    def complete(self) -> bool:
        """Return true if the reply is all there, for a tolerant reader."""
        return self in _COMPLETE


_ADDRESS = frozenset(
    {
        Fault.REFUSE,
        Fault.DNS_FAILURE,
        Fault.TLS_SELF_SIGNED,
        Fault.TLS_WRONG_NAME,
        Fault.TLS_PLAIN_TEXT,
    }
)
_COMPLETE = frozenset(
    {
        Fault.SLOW_HEADERS,
        Fault.WRONG_CONTENT_TYPE,
        Fault.NOT_STREAMED,
        Fault.TWO_DONE,
        Fault.NO_DONE,
        Fault.NO_FINISH,
        Fault.USAGE_MISSING,
        Fault.USAGE_WITH_CHOICES,
        Fault.COMMENTS,
        Fault.CRLF,
        Fault.HUGE_CHUNK,
        Fault.WRONG_MODEL,
        Fault.CLOSES_IDLE,
    }
)
_AFTER = {
    Fault.RESET: BEFORE_HEAD,
    Fault.CLOSE: BEFORE_HEAD,
    Fault.HANG: BEFORE_HEAD,
    Fault.STALL_BEFORE_FIRST: BEFORE_FIRST,
}


@dataclass(frozen=True, slots=True)
class Broken:
    """A reply with a fault.

    ``after`` is where it breaks: :data:`BEFORE_HEAD`, :data:`BEFORE_FIRST`, or
    after so many chunks with content (in a plain reply: inside its body);
    ``None`` is the fault's own place. ``status`` counts for those that have
    one (0: the fault's own), ``retry_after`` in seconds, ``pause`` in seconds
    a byte of a slow head, ``size`` in bytes of a huge chunk.
    """

    fault: Fault
    after: int | None = None
    reply: Reply = field(default_factory=Reply)
    status: int = 0
    retry_after: int = 2
    pause: float = 0.02
    size: int = 4 * 1024 * 1024

    @property
    def place(self) -> int:
        """Return the place of the break."""
        return _AFTER.get(self.fault, _IN_THE_MIDDLE) if self.after is None else self.after
