"""``causerie probe``: what does a provider really do?"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import typer
from rich.console import Console

from causerie.cli.access import Access, KeyOptions, access
from causerie.cli.asking import advice
from causerie.cli.exits import CommandFailed, ExitCode
from causerie.cli.in_force import settings_in_force
from causerie.cli.matrix import ProbeProgress, show
from causerie.operations.interviewing import CompletedInterview, carried_out, guessed, interview
from causerie.probe.asker import ProbeBounds, ProbeClient
from causerie.probe.cost import ProbeBudget, cost
from causerie.probe.interview import Patience
from causerie.probe.question import ProbeQuestion
from causerie.probe.questions import QUESTIONS, QUICK_QUESTIONS
from causerie.probe.questions.listing import LIST, entries, entry_of, listed_length
from causerie.probe.reading import message_of
from causerie.probe.reply import ProbeReply, dig
from causerie.probe.subject import Subject
from causerie.providers.dialect import CHAT, Dialect
from causerie.providers.dialects import GENERIC
from causerie.settings.toml import table_text

WHOLE_SECONDS = 1800.0
QUICK_SECONDS = 60.0


def check_api(dialect: Dialect | None) -> None:
    """Raise :class:`CommandFailed` for a server that is not asked as the probe asks."""
    if dialect is not None and dialect.api != CHAT:
        raise CommandFailed(
            f"{dialect.server} cannot be probed: the probe asks for chat completions, with the key "
            "as a bearer token; ask it through a gateway of this service instead",
            ExitCode.USAGE,
        )


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """Targets and bounds of one probe."""

    base_url: str
    models: tuple[str, ...]
    access: Access
    bounds: ProbeBounds
    total_seconds: float
    yes: bool
    quick: bool

    @property
    def questions(self) -> Sequence[ProbeQuestion]:
        return QUICK_QUESTIONS if self.quick else QUESTIONS


def plan_of(
    base_url: str,
    models: Sequence[str] | None,
    keys: KeyOptions,
    dialect: str | None,
    config: Path | None,
    seconds: float,
    total_seconds: float | None,
    yes: bool,
    quick: bool,
) -> ProbePlan:
    """Return the plan that the command line describes. Raises :class:`CommandFailed`."""
    address = base_url.rstrip("/")
    reach = access(address, settings_in_force(config, None), keys, dialect)
    check_api(reach.dialect)
    total = total_seconds or (QUICK_SECONDS if quick else WHOLE_SECONDS)
    bounds = ProbeBounds(seconds)
    return ProbePlan(address, tuple(models or ()), reach, bounds, total, yes, quick)


class _Run:
    """One run of the command: the models, the cost, the questions."""

    def __init__(self, plan: ProbePlan, notes: Console) -> None:
        self._plan = plan
        self._notes = notes
        self.dialect = plan.access.dialect

    async def interviews(self) -> list[CompletedInterview]:
        """Every model's, one after the other. Raises :class:`CommandFailed`."""
        plan = self._plan
        try:
            asker = ProbeClient(plan.base_url, plan.access.key, plan.access.reach, plan.bounds)
        except ValueError as error:
            raise CommandFailed(f"{plan.base_url}: {error}", ExitCode.USAGE) from error
        async with asker:
            listed = await asker.put(LIST)
            subjects = self._subjects(listed)
            self._learn_dialect(guessed(listed, subjects[0].model))
            self._agree(cost(plan.questions, subjects, dialect_preview=self.dialect is not None))
            return [await self._interview(asker, subject) for subject in subjects]

    def _learn_dialect(self, guessed: Dialect | None) -> None:
        if self.dialect is None:
            self.dialect = guessed
        elif guessed is not None and guessed is not self.dialect and self.dialect is GENERIC:
            self._say(f'it looks like {guessed.server}; `dialect = "{guessed.name}"` would fit')

    def _subjects(self, listed: ProbeReply) -> list[Subject]:
        """The models to ask, with what their entries tell."""
        plan = self._plan
        if not listed.status:
            raise CommandFailed(listed.trouble, ExitCode.NETWORK)
        if listed.status in (401, 403):
            raise CommandFailed(
                f"{plan.base_url} wants {'another' if plan.access.key else 'a'} key: "
                f"status {listed.status}; give one with --key-env, --key-file or --key"
            )
        names = plan.models or tuple(str(dig(one, "id")) for one in entries(listed)[:1])
        if not names:
            why = f"{listed.status}: {message_of(listed)}{advice(listed.status, plan.base_url)}"
            raise CommandFailed(
                f"{plan.base_url}/models lists no models ({why}); name one with --model"
            )
        bare = Subject(plan.base_url, "", keyed=plan.access.key is not None)
        return [
            replace(bare, model=name, context_length=listed_length(entry_of(listed, name)))
            for name in names
        ]

    def _agree(self, cost: ProbeBudget) -> None:
        """Say what it costs; where it is much, go on only when told to."""
        if self.dialect is not None:
            self._say(f"{self._plan.base_url} is spoken to as {self.dialect.server}")
        self._say(f"{self._plan.base_url}: {cost}")
        if not cost.large or self._plan.yes:
            return
        if not sys.stdin.isatty():
            raise CommandFailed("that is much; say --yes to go on", ExitCode.USAGE)
        if not typer.confirm("Go on?", err=True):
            raise CommandFailed("nothing was asked")

    async def _interview(self, asker: ProbeClient, subject: Subject) -> CompletedInterview:
        with self._progress(subject) as begins:
            patience = Patience(total_seconds=self._plan.total_seconds)
            asking = interview(subject, asker, self.dialect, patience, begins)
            asked = await carried_out(asking, self._plan.questions)
        self._say(f"{asked.requests} requests, {asked.tokens:,} tokens as it counts them")
        if self._plan.quick:
            left = [one.id for one in QUESTIONS if one not in QUICK_QUESTIONS]
            self._say(f"left out by --quick: {', '.join(left)}")
        return asked

    def _progress(self, subject: Subject) -> ProbeProgress:
        self._say(f"asking {subject.model}")
        return ProbeProgress(self._notes, len(self._plan.questions))

    def _say(self, line: str) -> None:
        self._notes.print(line, markup=False, highlight=False, soft_wrap=True)


def ask_and_show(plan: ProbePlan, *, as_json: bool) -> None:
    """Ask the models of the plan, and print what they do, with entries for the configuration."""
    interviews = asyncio.run(_Run(plan, Console(stderr=True)).interviews())
    if as_json:
        typer.echo(msgspec.json.encode([one.report(plan.base_url) for one in interviews]))
    for one in interviews if not as_json else ():
        show(Console(), one.entry, one.findings)
        if one.complete and not plan.quick:
            typer.echo(f"\nFor the configuration, below the provider:\n\n{_entry(one)}")


def print_entries(plan: ProbePlan) -> None:
    """Ask the models of the plan, and print their entries for the configuration alone."""
    interviews = asyncio.run(_Run(plan, Console(stderr=True)).interviews())
    for one in interviews:
        if not one.complete:
            raise CommandFailed(f"not every question about {one.entry.id} could be asked")
    typer.echo("\n\n".join(map(_entry, interviews)))


def _entry(one: CompletedInterview) -> str:
    return table_text(("providers", "models"), one.entry.values(), {"probed": one.entry.evidence})
