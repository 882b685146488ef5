"""``causerie probe``: what does an endpoint really do?"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from causerie.cli.bent import BentAsks
from causerie.cli.endpoint_file import Endpoint, write_entries
from causerie.cli.exits import CommandFailed, ExitCode, reporting
from causerie.cli.matrix import Asking, show
from causerie.probe.asker import Asker, Bounds
from causerie.probe.cost import Cost, cost
from causerie.probe.entry import Entry, entry
from causerie.probe.interview import Finding, Interview, Patience
from causerie.probe.questions import QUESTIONS
from causerie.probe.questions.listing import LIST, entries, entry_of, listed_length
from causerie.probe.reading import message_of
from causerie.probe.reply import Reply, dig
from causerie.probe.report import report
from causerie.probe.subject import Subject
from causerie.settings.environment import CLIENT_KEY, variables
from causerie.upstreams.dialect import Dialect
from causerie.upstreams.dialects import DIALECTS

_FILE = Path("causerie.toml")
_OWNERS = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama-server", "library": "ollama"}

Seconds = Annotated[
    float, typer.Option("--seconds", min=1, max=3600, help="Time limit for one request.")
]
Total = Annotated[
    float, typer.Option("--total-seconds", min=1, help="Time limit for all of a model's questions.")
]


Models = Annotated[
    list[str] | None,
    typer.Option("--model", "-m", help="Model id, several times for several models."),
]
KeyText = Annotated[str | None, typer.Option("--key", help="The key; others may see it.")]
KeyName = Annotated[
    str | None, typer.Option("--key-env", metavar="NAME", help="Variable with the key.")
]
KeyFile = Annotated[Path | None, typer.Option("--key-file", help="File with the key.")]
Kind = Annotated[
    str | None,
    typer.Option("--dialect", help="Kind of server; otherwise guessed from its models."),
]
Write = Annotated[
    bool, typer.Option("--write", "-w", help="Write the result into the configuration file.")
]
File = Annotated[Path, typer.Option("--config", "-c", help="The file that `--write` writes into.")]


def probe(
    base_url: Annotated[str, typer.Argument(help="Base address of the endpoint, with its /v1.")],
    models: Models = None,
    key: KeyText = None,
    key_env: KeyName = None,
    key_file: KeyFile = None,
    dialect: Kind = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array, all evidence.")] = False,
    write: Write = False,
    config: File = _FILE,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask about the cost.")] = False,
    seconds: Seconds = 60.0,
    total_seconds: Total = 1800.0,
) -> None:
    """Ask an endpoint small questions and show what it really does.

    One question for each rule of the interface and each parameter; an effect counts, not that
    a request was accepted. Without `--model`, the first model that the endpoint lists is asked.
    Without one of the options for a key, the variable CAUSERIE_API_KEY is read.

    **Examples**

    `causerie probe http://gpu:8000/v1`

    `causerie probe https://api.example.org/v1 --key-env EXAMPLE_KEY --model large --write`
    """
    with reporting():
        found = _Key.chosen(key, key_env, key_file)
        address = base_url.rstrip("/")
        kind = _named(dialect) if dialect is not None else None
        plan = _Plan(address, tuple(models or ()), found, Bounds(seconds), total_seconds, yes, kind)
        notes = Console(stderr=True)
        run = _Run(plan, notes)
        interviews = asyncio.run(run.interviews())
        if as_json:
            typer.echo(msgspec.json.encode([one.report(address) for one in interviews]))
        for one in interviews if not as_json else ():
            show(Console(), one.entry, one.findings)
        if write:
            name = run.dialect.name if run.dialect is not None else None
            _write(config, Endpoint(address, found.reference, name), interviews, notes)


@dataclass(frozen=True, slots=True)
class _Key:
    """The key, and where the configuration can say that it is found."""

    value: str | None
    reference: dict[str, str] | None

    def __repr__(self) -> str:
        return f"_Key(reference={self.reference!r})"

    @staticmethod
    def chosen(key: str | None, env: str | None, file: Path | None) -> _Key:
        """From the one option that was given; raises :class:`CommandFailed`."""
        if sum(option is not None for option in (key, env, file)) > 1:
            raise CommandFailed("give one of --key, --key-env and --key-file", ExitCode.USAGE)
        if file is not None:
            try:
                text = file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise CommandFailed(f"{file} cannot be read as text", ExitCode.USAGE) from error
            return _Key(_usable(text, str(file)), {"file": str(file.resolve())})
        if env is not None:
            value = variables().get(env, "")
            return _Key(_usable(value, f"the variable {env}"), {"env": env})
        if key is not None:
            return _Key(_usable(key, "--key"), None)
        value = variables().get(CLIENT_KEY, "")
        return _Key(value, {"env": CLIENT_KEY}) if value else _Key(None, None)


def _usable(key: str, where: str) -> str:
    """A key that fits into a header, or a sentence that does not show it."""
    if not key:
        raise CommandFailed(f"{where} holds no key", ExitCode.USAGE)
    if not key.isascii() or not key.isprintable():
        raise CommandFailed(f"{where} holds more than one line of plain characters", ExitCode.USAGE)
    return key


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is asked of whom."""

    base_url: str
    models: tuple[str, ...]
    key: _Key
    bounds: Bounds
    total_seconds: float
    yes: bool
    dialect: Dialect | None = None


@dataclass(frozen=True, slots=True)
class _Asked:
    """One model's interview, done."""

    entry: Entry
    findings: tuple[Finding, ...]
    requests: int
    tokens: int
    complete: bool

    def report(self, base_url: str) -> dict[str, object]:
        return report(
            base_url, self.entry, self.findings, requests=self.requests, tokens=self.tokens
        )


class _Run:
    """One run of the command: the models, the cost, the questions."""

    def __init__(self, plan: _Plan, notes: Console) -> None:
        self._plan = plan
        self._notes = notes
        self.dialect = plan.dialect

    async def interviews(self) -> list[_Asked]:
        """Every model's, one after the other. Raises :class:`CommandFailed`."""
        plan = self._plan
        try:
            asker = Asker(plan.base_url, plan.key.value, bounds=plan.bounds)
        except ValueError as error:
            raise CommandFailed(f"{plan.base_url}: {error}", ExitCode.USAGE) from error
        async with asker:
            listed = await asker.put(LIST)
            subjects = self._subjects(listed)
            self.dialect = self.dialect or _guessed(listed, subjects[0].model)
            self._agree(cost(QUESTIONS, subjects, bent=self.dialect is not None))
            return [await self._interview(asker, subject) for subject in subjects]

    def _subjects(self, listed: Reply) -> list[Subject]:
        """The models to ask, with what their entries tell."""
        plan = self._plan
        if not listed.status:
            raise CommandFailed(listed.trouble, ExitCode.NETWORK)
        if listed.status in (401, 403):
            raise CommandFailed(
                f"{plan.base_url} wants {'another' if plan.key.value else 'a'} key: "
                f"status {listed.status}; give one with --key-env, --key-file or --key"
            )
        names = plan.models or tuple(str(dig(one, "id")) for one in entries(listed)[:1])
        if not names:
            raise CommandFailed(
                f"{plan.base_url}/models lists no models ({listed.status}: "
                f"{message_of(listed)}); name one with --model"
            )
        bare = Subject(plan.base_url, "", keyed=plan.key.value is not None)
        return [
            replace(bare, model=name, context_length=listed_length(entry_of(listed, name)))
            for name in names
        ]

    def _agree(self, cost: Cost) -> None:
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

    async def _interview(self, asker: Asker, subject: Subject) -> _Asked:
        with self._progress(subject) as begins:
            patience = Patience(total_seconds=self._plan.total_seconds)
            bent = BentAsks(asker, self.dialect) if self.dialect is not None else None
            interview = Interview(subject, asker, patience, begins, bent=bent)
            findings = [one async for one in interview.findings(QUESTIONS)]
        self._say(f"{interview.requests} requests, {interview.spent:,} tokens as it counts them")
        return _Asked(
            entry(interview.subject, findings, date.today()),
            tuple(findings),
            interview.requests,
            interview.spent,
            interview.complete,
        )

    def _progress(self, subject: Subject) -> Asking:
        self._say(f"asking {subject.model}")
        return Asking(self._notes, len(QUESTIONS))

    def _say(self, line: str) -> None:
        self._notes.print(line, markup=False, highlight=False, soft_wrap=True)


def _named(dialect: str) -> Dialect:
    if dialect not in DIALECTS:
        known = ", ".join(DIALECTS)
        raise CommandFailed(f"no dialect is named {dialect}; known: {known}", ExitCode.USAGE)
    return DIALECTS[dialect]


def _guessed(listed: Reply, model: str) -> Dialect | None:
    """By whom the server says its models are owned."""
    owner = dig(entry_of(listed, model), "owned_by") or dig(entries(listed), 0, "owned_by")
    return DIALECTS.get(_OWNERS.get(str(owner), ""))


def _write(file: Path, endpoint: Endpoint, interviews: Sequence[_Asked], notes: Console) -> None:
    """Only complete interviews are worth keeping."""
    for one in interviews:
        if not one.complete:
            raise CommandFailed(
                f"{file} stays as it is: not every question about {one.entry.id} could be asked"
            )
    write_entries(file, endpoint, [one.entry for one in interviews])
    notes.print(f"wrote {file}", markup=False, highlight=False)
