"""Estimate of the tokens to reserve for a request before a target is chosen."""

from __future__ import annotations

from collections.abc import Sequence

from causerie.access.quota import Tokens
from causerie.protocol.candidate import Candidate
from causerie.protocol.estimate import UNNAMED_OUTPUT, prompt_estimate
from causerie.protocol.request import ChatRequest


def estimate(
    request: ChatRequest, candidates: Sequence[Candidate] = (), unnamed_output: int = UNNAMED_OUTPUT
) -> Tokens:
    """The prompt's tokens by its size, and the output limit (or what to expect without one).

    ``candidates`` are those who may answer, with the most that they give: not more than any of
    them does is expected.
    """
    output = request.max_tokens if request.max_tokens is not None else unnamed_output
    return Tokens(prompt_estimate(request), _given(output, candidates) * request.n)


class Estimate:
    """The estimate of one request, made once and only if it is asked for."""

    __slots__ = ("_candidates", "_made", "_request")

    def __init__(self, request: ChatRequest, candidates: Sequence[Candidate]) -> None:
        self._request = request
        self._candidates = candidates
        self._made: Tokens | None = None

    def __call__(self) -> Tokens:
        if self._made is None:
            self._made = estimate(self._request, self._candidates)
        return self._made


def _given(output: int, candidates: Sequence[Candidate]) -> int:
    """The most of these tokens that anybody gives; the first one gives all of them as a rule."""
    most = 0
    for one in candidates:
        bound = one.bounds.max_output_tokens
        if bound is None or bound >= output:
            return output
        most = max(most, bound)
    return most or output
