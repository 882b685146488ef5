"""How many tokens a request may need, guessed from its size.

No tokenizer: which one would be right is known only once a target is chosen,
and a limit must be asked before. The guess holds a reservation for the time of
the request and is settled by the truth, so it may be rough:

- a token for each four characters of ASCII text, for each three bytes of UTF-8
  of any other (a Chinese character is three bytes and about one token);
- four more a message, for the template's markers;
- 1,024 an image (128 to 1,600 are common, by its size);
- tools, schemas and documents by the size of their JSON;
- the output that was allowed, for each choice; 1,024 where no limit is named, and
  in any case not more than any of those who may answer gives.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from causerie.access.quota import Tokens
from causerie.protocol.candidate import Candidate
from causerie.protocol.request import ChatRequest, ImagePart, JsonSchema, Message

UNNAMED_OUTPUT = 1024
_IMAGE = 1024
_MESSAGE = 4


def estimate(
    request: ChatRequest,
    candidates: Sequence[Candidate] = (),
    unnamed_output: int = UNNAMED_OUTPUT,
) -> Tokens:
    """The prompt's tokens by its size, and the output limit (or what to expect without one).

    ``candidates`` are those who may answer, with the most that they give.
    """
    input = _MESSAGE * len(request.messages)
    if request.characters is not None:
        input -= -request.characters // 4
    else:
        input += sum(map(_message, request.messages))
    if request.tools or request.documents or request.output is not None:
        input += _beside(request)
    output = request.max_tokens if request.max_tokens is not None else unnamed_output
    return Tokens(input, _given(output, candidates) * request.n)


def _given(output: int, candidates: Sequence[Candidate]) -> int:
    """The most of these tokens that anybody gives; the first one gives all of them as a rule."""
    most = 0
    for one in candidates:
        bound = one.bounds.max_output_tokens
        if bound is None or bound >= output:
            return output
        most = max(most, bound)
    return most or output


def _beside(request: ChatRequest) -> int:
    """What the prompt holds besides messages."""
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
