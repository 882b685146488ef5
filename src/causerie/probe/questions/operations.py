"""Questions on the operations besides chat: embeddings, rerank and plain completions."""

from __future__ import annotations

import msgspec

from causerie.probe.question import (
    ProbeReply,
    ProbeRequest,
    Script,
    Subject,
    dig,
    no,
    partly,
    question,
    settle,
    yes,
)

_QUERY, _NEAR, _FAR = "Which animal barks?", "A dog barks.", "Iron is a metal."


def _asked(subject: Subject, operation: str, **fields: object) -> ProbeRequest:
    body = msgspec.json.encode({"model": subject.model, **fields})
    return ProbeRequest("POST", f"/{operation}", body)


def _document(reply: ProbeReply) -> object:
    settle(reply)
    return reply.document()


@question("embeddings", "contract 5", tokens=20, alone=True)
def _embeddings(subject: Subject) -> Script:
    """Are embeddings made?"""
    reply = yield _asked(subject, "embeddings", input=[_NEAR, _FAR])
    document = _document(reply)
    vectors = [dig(document, "data", index, "embedding") for index in range(2)]
    numbers = [one for one in vectors if isinstance(one, list) and one]
    if len(numbers) < len(vectors):
        return no("the reply has no vector for each text")
    if numbers[0] == numbers[1]:
        return no("two texts have the same vector")
    tokens = dig(document, "usage", "prompt_tokens")
    if not isinstance(tokens, int) or not tokens:
        return partly("no usage tells the tokens, which are estimated then")
    return yes(f"vectors of {len(numbers[0])} numbers")


@question("rerank", "contract 5", tokens=40, alone=True)
def _rerank(subject: Subject) -> Script:
    """Are documents ranked?"""
    reply = yield _asked(subject, "rerank", query=_QUERY, documents=[_FAR, _NEAR])
    document = _document(reply)
    results = dig(document, "results") or dig(document, "data")
    if not isinstance(dig(results, 0, "relevance_score"), int | float):
        return no("the reply has no `relevance_score`")
    if dig(results, 0, "index") != 1:
        return partly("the document that does not answer comes first")
    return yes()


@question("completions", "contract 5", tokens=10, alone=True)
def _completions(subject: Subject) -> Script:
    """Are plain texts completed?"""
    reply = yield _asked(subject, "completions", prompt="One, two, three,", max_tokens=4)
    if not isinstance(dig(_document(reply), "choices", 0, "text"), str):
        return no("the reply has no `text`")
    return yes()


QUESTIONS = (_embeddings, _rerank, _completions)
