"""Images among the messages, and who may be given one by its address."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from causerie.errors import InvalidRequest
from causerie.protocol.request import ImagePart, Message


def images(messages: Sequence[Message]) -> Iterator[tuple[str, ImagePart]]:
    """Each with the place of its part, as errors name it."""
    for index, message in enumerate(messages):
        if isinstance(message.content, tuple):
            for at, part in enumerate(message.content):
                if isinstance(part, ImagePart):
                    yield f"messages[{index}].content[{at}]", part


def inside(param: str, why: str) -> InvalidRequest:
    """The refusal of an address whose host is not public; ``why`` continues the sentence."""
    return InvalidRequest(
        f"`{param}.image_url.url` {why}; name a public host, or send the image itself, as a "
        "`data:` address.",
        code="unsupported_parameter",
        param=f"{param}.image_url.url",
    )


def not_fetched(param: str) -> InvalidRequest:
    """The refusal of an address, by a target for which nobody would fetch it."""
    return InvalidRequest(
        "What serves this model fetches no images; send the image itself, as a `data:` address.",
        code="unsupported_parameter",
        param=f"{param}.image_url.url",
    )
