"""Result of a probe of a model of a provider, as it is kept and shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime

from msgspec import Struct

from causerie.operations.interviewing import Answer, CompletedInterview, Found
from causerie.probe.entry import ProbedModel
from causerie.probe.subject import Thinking

_WORST: tuple[Answer, ...] = ("no", "unclear", "partly", "yes")


class Result(Struct, frozen=True, kw_only=True):
    """One probe of one model. ``complete``: every question could be asked.

    ``tokens`` are those that the provider has counted itself; ``used``: it was put in force.
    """

    provider: str
    model: str
    at: datetime
    complete: bool
    requests: int
    tokens: int
    probed: date
    context_length: int | None
    supported_parameters: tuple[str, ...]
    thinking: Thinking | None
    continues: bool | None
    evidence: str
    overclaimed: tuple[str, ...]
    findings: tuple[Found, ...]
    used: bool = False

    @staticmethod
    def of(provider: str, asked: CompletedInterview, at: datetime) -> Result:
        found = asked.entry
        return Result(
            provider=provider,
            model=found.id,
            at=at,
            complete=asked.complete,
            requests=asked.requests,
            tokens=asked.tokens,
            probed=found.probed,
            context_length=found.context_length,
            supported_parameters=found.supported_parameters,
            thinking=found.thinking,
            continues=found.continues,
            evidence=found.evidence,
            overclaimed=found.overclaimed,
            findings=tuple(map(Found.of, asked.findings)),
        )

    def entry(self) -> ProbedModel:
        return ProbedModel(
            id=self.model,
            context_length=self.context_length,
            supported_parameters=self.supported_parameters,
            thinking=self.thinking,
            continues=self.continues,
            probed=self.probed,
            evidence=self.evidence,
            overclaimed=self.overclaimed,
        )

    def answers(self) -> Mapping[str, Found]:
        """Of each parameter the question that came out worst, which decides it."""
        worst: dict[str, Found] = {}
        for name, found in self._decided():
            before = worst.get(name)
            if before is None or _WORST.index(found.answer) < _WORST.index(before.answer):
                worst[name] = found
        return worst

    def _decided(self) -> Iterator[tuple[str, Found]]:
        for found in self.findings:
            for name in found.decides:
                yield name, found
