"""A probe of a provider at the terminal: who is asked with what, the progress, and what was found.

Progress goes to stderr. Texts of a provider are shown without control characters and are not
read as markup.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import typer
from rich import progress
from rich.console import Console
from rich.table import Table
from rich.text import Text

from causerie.cli.chat_session import advice
from causerie.cli.command import CommandFailed, ExitCode, WrongUsage, print_json, printable
from causerie.composition.providers import reach
from causerie.http.client import Reach
from causerie.probe.interview import (
    CompletedInterview,
    Found,
    Interview,
    Patience,
    ProbeBounds,
    ProbeClient,
    ProbedModel,
    cost,
    guess_dialect,
)
from causerie.probe.question import ProbeQuestion, ProbeReply, Subject, dig
from causerie.probe.questions import QUESTIONS, QUICK_QUESTIONS
from causerie.probe.questions.listing import LIST, entries, entry_of, listed_length
from causerie.providers.dialect import CHAT, Dialect
from causerie.providers.dialects import DIALECTS, GENERIC
from causerie.settings.credentials import secret_value
from causerie.settings.environment import CLIENT_KEY, variables
from causerie.settings.provider import ProviderSettings
from causerie.settings.toml import table_text
from causerie.settings.values import Secret


def carry_out(run: ProbeRun, *, entry: bool, as_json: bool) -> None:
    interviews = asyncio.run(run.interviews())
    texts = [
        table_text(("providers", "models"), one.values(), {"probed": one.evidence})
        for one in interviews
    ]
    if as_json:
        print_json([one.report(run.base_url) for one in interviews])
    elif entry:
        for one in interviews:
            if not one.complete:
                raise CommandFailed(f"not every question about {one.model} could be asked")
        typer.echo("\n\n".join(texts))
    else:
        console = Console()
        for one, text in zip(interviews, texts, strict=True):
            if console.is_terminal:
                console.print(_build_findings_table(one.findings))
            lines = () if console.is_terminal else _format_findings(one.findings)
            for line in (*lines, *_format_probed_model_lines(one)):
                typer.echo(printable(line))
            if one.complete and not run.quick:
                typer.echo(f"\nFor the configuration, below the provider:\n\n{text}")


@dataclass(eq=False)
class ProbeRun:
    """One probe of a provider: its models and bounds; ``dialect`` is guessed if not named."""

    base_url: str
    models: tuple[str, ...]
    key: str | None = field(repr=False)
    dialect: Dialect | None
    reach: Reach | None  # `None` if the provider is not configured
    seconds: float  # for one request
    total_seconds: float
    yes: bool
    quick: bool

    def __post_init__(self) -> None:
        self._probe_questions = QUICK_QUESTIONS if self.quick else QUESTIONS

    async def interviews(self) -> list[CompletedInterview]:
        try:
            asker = ProbeClient(self.base_url, self.key, self.reach, ProbeBounds(self.seconds))
        except ValueError as error:
            raise WrongUsage(f"{self.base_url}: {error}") from error
        async with asker:
            listed = await asker.put(LIST)
            subjects = self._choose_subjects(listed)
            guessed = guess_dialect(listed, subjects[0].model)
            if guessed is not None and self.dialect is GENERIC and guessed is not GENERIC:
                words = f'`dialect = "{guessed.name}"` would fit'
                typer.echo(f"it looks like {guessed.server}; {words}", err=True)
            self.dialect = self.dialect or guessed
            asked = cost(self._probe_questions, subjects, dialect_preview=self.dialect is not None)
            if self.dialect is not None:
                typer.echo(f"{self.base_url} is spoken to as {self.dialect.server}", err=True)
            typer.echo(f"{self.base_url}: {asked}", err=True)
            if asked.large and not self.yes:
                if not sys.stdin.isatty():
                    raise WrongUsage("that is much; say --yes to go on")
                if not typer.confirm("Go on?", err=True):
                    raise CommandFailed("nothing was asked")
            return [await self._interview_model(asker, subject) for subject in subjects]

    def _choose_subjects(self, listing: ProbeReply) -> list[Subject]:
        if not listing.status:
            raise CommandFailed(listing.trouble, ExitCode.NETWORK)
        if listing.status in (401, 403):
            raise CommandFailed(
                f"{self.base_url} wants {'another' if self.key else 'a'} key: "
                f"status {listing.status}; give one with --key-env, --key-file or --key"
            )
        names = self.models or tuple(str(dig(one, "id")) for one in entries(listing)[:1])
        if not names:
            why = f"{listing.status}: {listing.message}{advice(listing.status, self.base_url)}"
            words = f"{self.base_url}/models lists no models ({why}); name one with --model"
            raise CommandFailed(words)
        bare = Subject(self.base_url, "", keyed=self.key is not None)
        return [
            replace(bare, model=name, context_length=listed_length(entry_of(listing, name)))
            for name in names
        ]

    async def _interview_model(self, client: ProbeClient, subject: Subject) -> CompletedInterview:
        typer.echo(printable(f"asking {subject.model}"), err=True)
        with _show_progress_bar(len(self._probe_questions)) as begins:
            patience = Patience(total_seconds=self.total_seconds)
            asking = Interview(subject, client, patience, begins, dialect=self.dialect)
            asked = await asking.run(self._probe_questions)
        spent = f"{asked.requests} requests, {asked.tokens:,} tokens as it counts them"
        typer.echo(spent, err=True)
        if self.quick:
            left = [one.id for one in QUESTIONS if one not in QUICK_QUESTIONS]
            typer.echo(f"left out by --quick: {', '.join(left)}", err=True)
        return asked


def chosen_dialect(name: str | None, known: ProviderSettings | None) -> Dialect | None:
    if name is not None and name not in DIALECTS:
        names = ", ".join(DIALECTS)
        raise WrongUsage(f"no dialect is named {name}; known: {names}")
    kind = name or (known.dialect if known is not None else None)
    dialect = DIALECTS[kind] if kind is not None else None
    if dialect is not None and dialect.api != CHAT:
        raise WrongUsage(
            f"{dialect.server} cannot be probed: the probe asks for chat completions, with the key "
            "as a bearer token; ask it through a gateway of this service instead"
        )
    return dialect


def configured_reach(known: ProviderSettings | None) -> Reach | None:
    if known is None:
        return None
    try:
        found = known.proxy if isinstance(known.proxy, Secret) else None
        return reach(known, secret_value(found, variables()) if found is not None else None)
    except (OSError, ValueError) as error:
        raise CommandFailed(
            f"the provider {known.name} cannot be reached as configured: {error}",
            ExitCode.CONFIGURATION,
        ) from error


def chosen_key(
    text: str | None, env: str | None, file: Path | None, known: ProviderSettings | None
) -> str | None:
    if (text, env, file).count(None) < 2:
        raise WrongUsage("give one of --key, --key-env and --key-file")
    if text is not None:
        if not text.isascii() or not text.isprintable() or not text or " " in text:
            raise WrongUsage("--key takes one word in ASCII")
        return text
    environ = variables()
    if env is not None:
        place = Secret(env=env)
    elif file is not None:
        place = Secret(file=str(file.resolve()))
    elif known is not None and known.key is not None:
        place = known.key
    elif environ.get(CLIENT_KEY):
        place = Secret(env=CLIENT_KEY)
    else:
        return None
    try:
        return secret_value(place, environ)
    except ValueError as error:
        raise WrongUsage(f"no key: {error}") from error


# The current question: a bar on a terminal, else a line each.
@contextmanager
def _show_progress_bar(question_count: int) -> Iterator[Callable[[ProbeQuestion], None]]:
    console = Console(stderr=True)
    bar = progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    task, numbers = bar.add_task("", total=question_count), count()

    def begin(question: ProbeQuestion) -> None:
        number = next(numbers)
        bar.update(task, completed=number, description=question.words)
        if bar.disable:
            typer.echo(f"[{number + 1}/{question_count}] {question.id}: {question.words}", err=True)

    with bar:
        yield begin


def _format_findings(findings: Sequence[Found]) -> Iterator[str]:
    for found in findings:
        how = f"  {printable(found.how)}" if found.how else ""
        yield f"{found.answer:8}{found.id:32}({found.rule}){how}"
        if found.answer != "yes":
            yield from (f"          {line}" for line in _format_last_exchanges(found))


def _format_probed_model_lines(model: ProbedModel) -> Iterator[str]:
    yield ""
    yield f"{printable(model.model)}: {model.evidence}"
    length = f"{model.context_length} tokens" if model.context_length else "not known"
    goes_on = {True: "yes", False: "no", None: "not known"}[model.continues]
    yield f"context: {length}; thinking: {model.thinking or 'not known'}; continues: {goes_on}"
    if model.operations:
        yield "serves: " + ", ".join(model.operations)
    if model.overclaimed:
        yield "claimed, and not honoured: " + printable(", ".join(model.overclaimed))
    yield "supported: " + (", ".join(model.supported_parameters) or "nothing")


def _build_findings_table(findings: Sequence[Found]) -> Table:
    styles = {"yes": "green", "partly": "yellow", "no": "red", "unclear": "dim"}
    table = Table(box=None, pad_edge=False)
    for name in ("", "question", "rule", "how, and what was seen"):
        table.add_column(name, overflow="fold")
    for found in findings:
        seen = Text(printable(found.how))
        if found.answer != "yes":
            for line in _format_last_exchanges(found):
                seen.append(f"\n{line}", style="dim")
        answer = Text(found.answer, style=styles[found.answer])
        table.add_row(answer, Text(found.question), Text(found.rule), seen)
    return table


def _format_last_exchanges(finding: Found) -> Iterator[str]:
    for one in finding.evidence[-2:]:
        yield f"asked: {one.asked}"
        yield f"came:  {one.came}"
