"""Display of a probe: progress while it runs, and the matrix of its findings.

Progress goes to stderr. Texts of a provider are shown without control characters and are not read
as markup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from causerie.cli.terminal import printable
from causerie.probe.entry import ProbedModel
from causerie.probe.interview import Finding
from causerie.probe.question import ProbeQuestion
from causerie.probe.verdict import Grade

_STYLES = {Grade.YES: "green", Grade.PARTLY: "yellow", Grade.NO: "red", Grade.UNCLEAR: "dim"}


class ProbeProgress:
    """Shows which question is being asked: a bar on a terminal, else a line each."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._count = 0
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Callable[[ProbeQuestion], None]:
        self._bar.start()
        return self._begins

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def _begins(self, question: ProbeQuestion) -> None:
        """The next question is asked now."""
        self._bar.update(self._task, completed=self._count, description=question.words)
        self._count += 1
        if self._bar.disable:
            line = f"[{self._count}/{self._total}] {question.id}: {question.words}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def show(console: Console, entry: ProbedModel, findings: Sequence[Finding]) -> None:
    """The matrix, then what follows from it."""
    if console.is_terminal:
        console.print(_table(findings))
    else:
        for line in lines(findings):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    for line in conclusion(entry):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """The matrix as plain lines: answer, question and rule, how; the evidence below."""
    for finding in findings:
        question, verdict = finding.question, finding.verdict
        how = f"  {printable(verdict.how)}" if verdict.how else ""
        yield f"{verdict.grade.value:8}{question.id:32}({question.rule}){how}"
        if verdict.grade is not Grade.YES:
            yield from (f"          {line}" for line in _evidence(finding))


def conclusion(entry: ProbedModel) -> Iterator[str]:
    """Yield the lines of the summary that the configuration would hold."""
    yield ""
    yield f"{printable(entry.id)}: {entry.evidence}"
    length = f"{entry.context_length} tokens" if entry.context_length else "not known"
    goes_on = {True: "yes", False: "no", None: "not known"}[entry.continues]
    yield f"context: {length}; thinking: {entry.thinking or 'not known'}; continues: {goes_on}"
    if entry.overclaimed:
        yield "claimed, and not honoured: " + printable(", ".join(entry.overclaimed))
    yield "supported: " + (", ".join(entry.supported_parameters) or "nothing")


def _table(findings: Sequence[Finding]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("", "question", "rule", "how, and what was seen"):
        table.add_column(name, overflow="fold")
    for finding in findings:
        question, verdict = finding.question, finding.verdict
        seen = Text(printable(verdict.how))
        if verdict.grade is not Grade.YES:
            for line in _evidence(finding):
                seen.append(f"\n{line}", style="dim")
        answer = Text(verdict.grade.value, style=_STYLES[verdict.grade])
        table.add_row(answer, Text(question.words), Text(question.rule), seen)
    return table


def _evidence(finding: Finding) -> Iterator[str]:
    """The last two exchanges; ``--json`` has all of them."""
    for one in finding.exchanges[-2:]:
        yield f"asked: {one.asked}"
        yield f"came:  {one.came}"
