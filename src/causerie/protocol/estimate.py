"""Estimate of a request's tokens, from its size.

No tokenizer is used: the right one is known only once a target is chosen, a limit must be checked
before that, and a provider's tokenizer is not known at all. The estimate is the size of a
reservation, and the charge of a request whose provider never reported its tokens:

- a token for each four characters of ASCII text, for each three bytes of UTF-8
  of any other (a Chinese character is three bytes and about one token);
- four more a message, for the template's markers;
- 1,024 an image (128 to 1,600 are common, by its size);
- tools, schemas and documents by the size of their JSON;
- the output that was allowed, for each choice; 1,024 if no limit is named.
"""

from __future__ import annotations

import msgspec

from causerie.protocol.request import ChatRequest, ImagePart, JsonSchema, Message

UNNAMED_OUTPUT = 1024
_IMAGE = 1024
_MESSAGE = 4


def prompt_estimate(request: ChatRequest) -> int:
    """Return about how many tokens the prompt has."""
    tokens = _MESSAGE * len(request.messages)
    if request.characters is not None:
        tokens -= -request.characters // 4
    else:
        tokens += sum(map(_message, request.messages))
    if request.tools or request.documents or request.output is not None:
        tokens += _alongside(request)
    return tokens


def output_estimate(request: ChatRequest) -> int:
    """Return how many tokens all choices together may have, within the bounds of its target."""
    tokens = request.max_tokens
    if tokens is None:
        most = request.bounds.max_output_tokens
        tokens = UNNAMED_OUTPUT if most is None else min(UNNAMED_OUTPUT, most)
    return tokens * request.n


def _alongside(request: ChatRequest) -> int:
    """Estimate the tokens of the prompt in addition to its messages."""
    tokens = sum(map(_json, request.documents))
    for tool in request.tools:
        tokens += _text(tool.name) + _text(tool.description) + _json(tool.parameters)
    if isinstance(request.output, JsonSchema):
        tokens += _json(request.output.schema)
    return tokens


def _message(message: Message) -> int:
    content = message.content
    tokens = 0
    if isinstance(content, str):
        tokens = _text(content)
    elif content:
        for part in content:
            tokens += _IMAGE if isinstance(part, ImagePart) else _text(part.text)
    for call in message.tool_calls:
        tokens += _text(call.name) + _text(call.arguments)
    return tokens + _text(message.reasoning_content)


def _json(value: object) -> int:
    return -(-len(msgspec.json.encode(value)) // 4)


def _text(text: str | None) -> int:
    if not text:
        return 0
    if text.isascii():
        return -(-len(text) // 4)
    return -(-len(text.encode("utf-8", "surrogatepass")) // 3)
