"""Schemas of a folder: refused, enforced by the grammar alone, or with the check of the answer.

python bench/schemas.py --corpus FOLDER [--documents FOLDER] [--vocabulary FILE] [--sample 500]
    [--results FILE]

Reads every ``.json`` below FOLDER: a schema, a schema under ``json_schema``, a schema with
documents as MaskBench has them, or a list of such as the official test suite has them.
Documents are given to the grammar and to the check, whose verdicts are compared with those of the
file: valid ones that are excluded, by the rule, and invalid ones that are admitted. Prints the
counts, the refusals by class (no document satisfies the schema, it names a document that was not
given, other) with their most frequent reasons, and the time from the schema to the verdict.
Documents of the other folder are those that the official test suite has at http://localhost:1234/;
each is put into the schemas that refer to it.

FILE of the results gets a line of JSON for each schema as soon as it is known. A run that was
interrupted goes on behind the lines that FILE has.

For MaskBench FOLDER is ``maskbench/data`` of the repository ``guidance-ai/jsonschemabench``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from schema_documents import Judge, Verdict, grammar_of

from causerie.chat.answer import SchemaCache, answer_plan
from causerie.chat.compiler import Compiler, Vocabulary
from causerie.chat.schema import WhiteSpace, prepare
from causerie.chat.schema.keywords import SchemaRefused
from causerie.chat.schema.references import Addresses, Documents, with_documents
from causerie.errors import ServiceError
from causerie.protocol.request import JsonSchema

_HOST = "http://localhost:1234/"
READER = "causerie.engines.weights.vocabulary:read_vocabulary"
_CLASSES = {
    "no document satisfies it": re.compile(
        "no (finite )?document can satisfy it|admits no document"
    ),
    "names a document that was not given": re.compile("names a document that is not in the schema"),
    "other": re.compile(""),
}
PATIENCE = 120.0  # seconds, on a machine that others use too
_NUMBERS = re.compile(r"[0-9]+|'[^']*'|#\S*")


@dataclass(frozen=True, slots=True)
class Case:
    """A schema, where it stands, and documents with whether they follow it."""

    name: str
    schema: Any
    documents: tuple[tuple[Any, bool], ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one schema and its documents; ``reason`` is that of a refusal."""

    name: str
    reason: str = ""
    left: bool = False
    """The check of the answer holds some rules."""
    prepared: float = 0.0
    """Seconds, as ``compiled``."""
    compiled: float = 0.0
    verdicts: Mapping[str, int] = field(default_factory=dict)
    """Of valid documents, by the name of the verdict."""
    invalid: int = 0
    """Documents."""
    late: int = 0
    """Invalid documents that the grammar admits, and the last check excludes."""
    watched: int = 0
    """Those of them whose fault is found, and mended, while they are written."""
    wrong: Sequence[str] = ()
    """Valid documents that are excluded and invalid ones that are admitted, each with its file."""


def cases(folder: Path) -> Iterator[Case]:
    """Yield the schemas of a folder; files that hold none are left out."""
    for path in sorted(folder.rglob("*.json")):
        name = str(path.relative_to(folder))
        try:
            found = json.loads(path.read_text())
        except ValueError:
            continue
        if isinstance(found, list):
            for at, group in enumerate(each for each in found if "schema" in each):
                documents = tuple((one["data"], one["valid"]) for one in group["tests"])
                yield Case(f"{name} {at}: {group['description']}", group["schema"], documents)
        elif isinstance(found, dict):
            tests = found.get("tests") if "schema" in found else None
            documents = tuple((one["data"], one["valid"]) for one in tests or ())
            schema = found["schema"] if tests is not None else found.get("json_schema", found)
            yield Case(name, schema, documents)


def documents_of(folder: Path) -> Documents:
    """Return the documents of a folder by their addresses."""
    found = {path: json.loads(path.read_text()) for path in sorted(folder.rglob("*.json"))}
    return {
        _HOST + path.relative_to(folder).as_posix(): document
        for path, document in found.items()
        if isinstance(document, dict)
    }


def _with(documents: Documents, case: Case) -> Case:
    if not documents or not isinstance(case.schema, dict):
        return case
    return replace(case, schema=with_documents(Addresses(case.schema), documents).whole)


async def measured(case: Case, compiler: Compiler, vocabulary: str | None) -> Outcome:
    """Return what becomes of one schema and its documents."""
    begin = time.perf_counter()
    try:
        prepared = prepare(case.schema, param="schema")
        output = JsonSchema(case.schema, "schema")
        plan = await answer_plan(output, (), SchemaCache(), white_space=WhiteSpace.PRETTY)
        written = time.perf_counter()
        grammar = grammar_of(plan.expression, plan.rules)
        await compiler.check(grammar, Vocabulary(vocabulary), param="schema")
    except (SchemaRefused, ServiceError) as error:
        return Outcome(case.name, reason=str(error))
    outcome = Outcome(
        case.name,
        left=bool(prepared.left),
        prepared=written - begin,
        compiled=time.perf_counter() - written,
    )
    return await _judged(case, Judge(case.schema, grammar, prepared.rules), outcome)


async def _judged(case: Case, judge: Judge, outcome: Outcome) -> Outcome:
    """Return the outcome with what became of the documents."""
    verdicts: Counter[str] = Counter()
    late, watched, wrong = 0, 0, []
    for document, valid in case.documents:
        judged = await judge.of(document, why=valid)
        shown = f"{case.name}: {json.dumps(document)[:200]}"
        if valid:
            verdicts[judged.verdict.name] += 1
            if judged.verdict is Verdict.EXCLUDED:
                wrong.append(f"valid, excluded: {shown} {judged.fault}")
        else:
            if judged.grammar and judged.verdict is Verdict.EXCLUDED:
                late += 1
                watched += judge.is_watched(document)
            if judged.verdict is Verdict.ADMITTED:
                wrong.append(f"invalid, admitted: {shown}")
    invalid = sum(not valid for _, valid in case.documents)
    found = replace(outcome, verdicts=dict(verdicts), invalid=invalid, wrong=wrong)
    return replace(found, late=late, watched=watched)


def known(results: Path | None) -> dict[str, Outcome]:
    """Return the outcomes of an earlier run, by the name of the schema."""
    if results is None or not results.exists():
        return {}
    lines = results.read_text().splitlines()
    found = (Outcome(**json.loads(line)) for line in lines if line.strip())
    return {outcome.name: outcome for outcome in found}


async def measure(
    found: Sequence[Case], compiler: Compiler, vocabulary: str | None, results: Path | None
) -> list[Outcome]:
    """Measure the schemas that ``results`` lacks, and return the outcomes of all."""
    done = known(results)
    with results.open("a") if results else nullcontext() as out:
        for case in found:
            if case.name in done:
                continue
            done[case.name] = outcome = await measured(case, compiler, vocabulary)
            if out is not None:
                out.write(json.dumps(asdict(outcome)) + "\n")
                out.flush()
    return [done[case.name] for case in found]


async def run(arguments: argparse.Namespace) -> None:
    """Measure all schemas and print the findings."""
    documents = documents_of(arguments.documents) if arguments.documents else {}
    found = [_with(documents, case) for case in cases(arguments.corpus)]
    if arguments.sample and len(found) > arguments.sample:
        found = random.Random(0).sample(found, arguments.sample)
    compiler = Compiler(reader=READER, patience=PATIENCE)
    try:
        outcomes = await measure(found, compiler, arguments.vocabulary, arguments.results)
    finally:
        await compiler.stop()
    for line in report(outcomes, verbose=arguments.verbose):
        print(line)


def report(outcomes: Sequence[Outcome], *, verbose: bool) -> Iterator[str]:
    """Yield the lines of the findings."""
    yield from _report_of_schemas(outcomes, 30 if verbose else 12)
    wrong = [line for outcome in outcomes for line in outcome.wrong]
    verdicts = sum((Counter(outcome.verdicts) for outcome in outcomes), Counter[str]())
    yield f"{verdicts.total()} valid documents"
    for verdict in Verdict:
        yield f"{verdicts[verdict.name]:6} {verdict.value}"
    counted = ("invalid", "late", "watched")
    invalid, late, watched = (sum(getattr(each, of) for each in outcomes) for of in counted)
    admitted = sum(line.startswith("invalid") for line in wrong)
    yield f"{invalid} invalid documents, {admitted} admitted, {late} by the grammar only"
    yield f"       {watched} of these are found while they are written"
    refused = [f"{each.name}: {each.reason[:160]}" for each in outcomes if each.reason]
    for line in [*wrong, *refused] if verbose else wrong[:10]:
        yield f"       {line}"


def _report_of_schemas(outcomes: Sequence[Outcome], most: int) -> Iterator[str]:
    """Yield how many schemas are refused and why, and how long the others took."""
    total = max(len(outcomes), 1)
    reasons = [_reason(outcome) for outcome in outcomes if outcome.reason]
    share, left = 100 * len(reasons) / total, sum(outcome.left for outcome in outcomes)
    refused = f"{len(reasons)} refused ({share:.2f} %)"
    yield f"{len(outcomes)} schemas, {refused}, {left} checked at the end"
    classes = Counter(
        next(name for name, said in _CLASSES.items() if said.search(one)) for one in reasons
    )
    for name in _CLASSES:
        yield f"{classes[name]:6} ({100 * classes[name] / total:.2f} %) {name}"
    for reason, count in Counter(_NUMBERS.sub("N", one)[:100] for one in reasons).most_common(most):
        yield f"{count:6} {reason}"
    compiled = [outcome for outcome in outcomes if not outcome.reason]
    for what, of in (("schema to grammar", "prepared"), ("compilation", "compiled")):
        if times := [1000 * getattr(outcome, of) for outcome in compiled]:
            middle = statistics.median(times)
            yield f"{what}: {middle:.1f} ms in the median, {max(times):.0f} at worst"


def _reason(outcome: Outcome) -> str:
    return outcome.reason.partition("cannot be enforced: ")[2] or outcome.reason


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--corpus", type=Path, required=True, help="folder with schemas")
    parser.add_argument("--documents", type=Path, help="documents that schemas may refer to")
    parser.add_argument("--vocabulary", help="model file whose tokens the grammars are compiled by")
    parser.add_argument("--sample", type=int, help="so many of the schemas, chosen at random")
    parser.add_argument(
        "--results", type=Path, help="file of JSON lines, which a later run goes on"
    )
    parser.add_argument("--verbose", action="store_true", help="name every schema")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
