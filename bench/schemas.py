"""Schemas of a folder: refused, enforced by the grammar alone, or with the check of the answer.

python bench/schemas.py --corpus FOLDER [--documents FOLDER] [--vocabulary FILE] [--sample 500]

Reads every ``.json`` below FOLDER: a schema, a schema under ``json_schema``, a schema with
documents as MaskBench has them, or a list of such as the official test suite has them.
Documents are given to the grammar and to the check, whose verdicts are compared with those of the
file: valid ones that are excluded, by the rule, and invalid ones that are admitted. Prints the
counts, the refusals by class (no document satisfies the schema, it names a document that was not
given, other) with their most frequent reasons, and the time from the schema to the verdict.
Documents of the other folder are those that the official test suite has at http://localhost:1234/;
each is put into the schemas that refer to it.

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
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from schema_documents import Judge, Verdict, grammar_of

from causerie.chat.answer import answer_plan
from causerie.chat.compiler import Compiler
from causerie.chat.schema import WhiteSpace, prepare
from causerie.chat.schema.addresses import Addresses
from causerie.chat.schema.meta_schemas import Documents, with_documents
from causerie.chat.schema_cache import SchemaCache
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


@dataclass(slots=True)
class Findings:
    """Counts over all schemas."""

    total: int = 0
    classes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    left: int = 0
    valid: int = 0
    invalid: int = 0
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    """Of valid documents."""
    late: int = 0
    """Invalid documents that the grammar admits, and the last check excludes."""
    wrong: list[str] = field(default_factory=list)
    prepared: list[float] = field(default_factory=list)
    compiled: list[float] = field(default_factory=list)


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


async def measured(case: Case, compiler: Compiler, vocabulary: str | None, all_: Findings) -> None:
    """Add one schema to the findings."""
    all_.total += 1
    begin = time.perf_counter()
    try:
        prepared = prepare(case.schema, param="schema")
        output = JsonSchema(case.schema, "schema")
        plan = await answer_plan(output, (), SchemaCache(), white_space=WhiteSpace.PRETTY)
        all_.prepared.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        grammar = grammar_of(plan.expression, plan.rules)
        await compiler.check(grammar, vocabulary=vocabulary, param="schema")
        all_.compiled.append(time.perf_counter() - begin)
    except ServiceError as error:
        reason = error.message.partition("cannot be enforced: ")[2] or error.message
        all_.classes[next(name for name, said in _CLASSES.items() if said.search(reason))] += 1
        all_.reasons[_NUMBERS.sub("N", reason)[:100]] += 1
        all_.refused.append(f"{case.name}: {error.message[:160]}")
        return
    all_.left += bool(prepared.left)
    await _compare(case, Judge(case.schema, grammar, prepared.rules), all_)


async def _compare(case: Case, judge: Judge, all_: Findings) -> None:
    for document, valid in case.documents:
        judged = await judge.of(document, why=valid)
        written = json.dumps(document)[:200]
        if valid:
            all_.valid += 1
            all_.verdicts[judged.verdict] += 1
            if judged.verdict is Verdict.EXCLUDED:
                all_.wrong.append(f"valid, excluded: {case.name}: {written} {judged.fault}")
        else:
            all_.invalid += 1
            all_.late += judged.grammar and judged.verdict is Verdict.EXCLUDED
            if judged.verdict is Verdict.ADMITTED:
                all_.wrong.append(f"invalid, admitted: {case.name}: {written}")


async def run(arguments: argparse.Namespace) -> None:
    """Measure all schemas and print the findings."""
    documents = documents_of(arguments.documents) if arguments.documents else {}
    found = [_with(documents, case) for case in cases(arguments.corpus)]
    if arguments.sample and len(found) > arguments.sample:
        found = random.Random(0).sample(found, arguments.sample)
    all_ = Findings()
    compiler = Compiler(reader=READER, patience=PATIENCE)
    try:
        for case in found:
            await measured(case, compiler, arguments.vocabulary, all_)
    finally:
        await compiler.stop()
    _print(all_, verbose=arguments.verbose)


def _print(all_: Findings, *, verbose: bool) -> None:
    refused = len(all_.refused)
    share = 100 * refused / max(all_.total, 1)
    print(
        f"{all_.total} schemas, {refused} refused ({share:.2f} %), {all_.left} checked at the end"
    )
    for name in _CLASSES:
        of = all_.classes[name]
        print(f"{of:6} ({100 * of / max(all_.total, 1):.2f} %) {name}")
    for reason, count in all_.reasons.most_common(30 if verbose else 12):
        print(f"{count:6} {reason}")
    for what, times in (("schema to grammar", all_.prepared), ("compilation", all_.compiled)):
        if times:
            middle = statistics.median(times)
            print(f"{what}: {1000 * middle:.1f} ms in the median, {1000 * max(times):.0f} at worst")
    print(f"{all_.valid} valid documents")
    for verdict in Verdict:
        print(f"{all_.verdicts[verdict]:6} {verdict.value}")
    admitted = sum(line.startswith("invalid") for line in all_.wrong)
    print(f"{all_.invalid} invalid documents, {admitted} admitted, {all_.late} by the grammar only")
    for line in [*all_.wrong, *all_.refused] if verbose else all_.wrong[:10]:
        print("      ", line)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--corpus", type=Path, required=True, help="folder with schemas")
    parser.add_argument("--documents", type=Path, help="documents that schemas may refer to")
    parser.add_argument("--vocabulary", help="model file whose tokens the grammars are compiled by")
    parser.add_argument("--sample", type=int, help="so many of the schemas, chosen at random")
    parser.add_argument("--verbose", action="store_true", help="name every schema")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
