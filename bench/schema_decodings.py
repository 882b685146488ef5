"""Real decodings of the schemas of a folder: how many answers are valid, cut, or refused.

python bench/schema_decodings.py --corpus FOLDER --results FILE [--model model.gguf] [--sample 500]

Asks the model for one document by each schema and adds a line of JSON to FILE for each, as soon
as it is known. Without a model documents are written at random under the grammar. A run that was
interrupted goes on behind the lines that FILE has. Answers are read by the check of this project
and, where ``jsonschema`` is installed, by that too.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from random_writer import RandomWriter
from schemas import PATIENCE, READER, Case, cases

from causerie.chat.chat import TextChat
from causerie.chat.compiler import Compiler
from causerie.chat.schema.compiled import Work
from causerie.chat.schema.normal import Rewriter
from causerie.chat.validation import MOST_STEPS, CheckedSchema
from causerie.engines.base import TextEngine
from causerie.engines.llamacpp.engine import LlamaCppEngine
from causerie.engines.llamacpp.options import LlamaCppOptions
from causerie.errors import ConstraintNotKept, InvalidRequest, ServiceError
from causerie.protocol.events import Finished, TextDelta
from causerie.protocol.parameters import SamplingParams
from causerie.protocol.request import ChatRequest, JsonSchema, Message

_PROMPT = "Write one JSON document by this schema: "
_SHOWN = 1_000  # characters of a schema
_KINDS = ("valid", "cut", "refused", "failed", "invalid")


async def decoded(chat: TextChat, case: Case, limit: int) -> dict[str, Any]:
    """Return what became of one schema: its kind, the document, and the reason of a failure.

    ``cut`` documents reached the limit. ``refused`` are those before the answer, ``failed`` those
    in the middle of it.
    """
    prompt = _PROMPT + json.dumps(case.schema, ensure_ascii=False)[:_SHOWN]
    request = ChatRequest(
        "m",
        (Message("user", prompt),),
        max_tokens=limit,
        sampling=SamplingParams(temperature=0),
        output=JsonSchema(case.schema, "schema"),
    )
    text, finish = "", ""
    try:
        async with chat.generate(request) as answer:
            async for batch in answer.events:
                for event in batch:
                    if isinstance(event, TextDelta):
                        text += event.text
                    elif isinstance(event, Finished):
                        finish = event.reason
    except ServiceError as error:
        ended = isinstance(error, ConstraintNotKept) or not isinstance(error, InvalidRequest)
        kind = "failed" if ended else "refused"
        return {"kind": kind, "reason": error.message[:300], "text": text}
    if finish != "stop":
        return {"kind": "cut", "text": text}
    rules = CheckedSchema(Rewriter(case.schema, "schema").rewrite())
    fault = rules.fault_of_text(text, Work(MOST_STEPS)) or _other(case, text)
    return {"kind": "invalid" if fault else "valid", "reason": fault, "text": text}


def _other(case: Case, text: str) -> str | None:
    """Return the fault that another implementation finds, if it is installed and takes the schema.

    It fetches nothing: a schema that it cannot read by itself is passed over.
    """
    try:
        library = importlib.import_module("jsonschema")
        validator = library.validators.validator_for(case.schema)(case.schema)
        faults = [error.message for error in validator.iter_errors(json.loads(text))]
    except Exception:  # noqa: BLE001 - an invalid schema may raise anything there
        return None
    return f"jsonschema: {faults[0][:200]}" if faults else None


def known(results: Path) -> dict[str, dict[str, Any]]:
    """Return the lines of an earlier run, by the name of the schema."""
    if not results.exists():
        return {}
    lines = [json.loads(line) for line in results.read_text().splitlines() if line.strip()]
    return {line["name"]: line for line in lines}


async def decode(
    engine: TextEngine, found: Sequence[Case], results: Path, limit: int, at_once: int = 1
) -> Counter[str]:
    """Decode what ``results`` lacks, and return the counts of all."""
    done = known(results)
    counts = Counter(done[case.name]["kind"] for case in found if case.name in done)
    left = iter([case for case in found if case.name not in done])
    compiler = Compiler(reader=READER, patience=PATIENCE)
    chat = TextChat(engine, compiler)

    async def decode_left(out: TextIO) -> None:
        for case in left:
            begin = time.perf_counter()
            outcome = await decoded(chat, case, limit)
            seconds = round(time.perf_counter() - begin, 2)
            out.write(json.dumps({"name": case.name, **outcome, "seconds": seconds}) + "\n")
            out.flush()
            counts[outcome["kind"]] += 1
            print(f"{counts.total()} of {len(found)}: {case.name} {outcome['kind']}", flush=True)

    try:
        with results.open("a") as out:
            async with asyncio.TaskGroup() as group:
                for _ in range(at_once):
                    group.create_task(decode_left(out))
    finally:
        await compiler.stop()
    return counts


def _engine(arguments: argparse.Namespace) -> LlamaCppEngine | RandomWriter:
    if arguments.model is None:
        return RandomWriter("m", dice=random.Random(arguments.seed))
    options = LlamaCppOptions(
        context=4096,
        parallel=arguments.at_once,
        threads=arguments.threads,
    )
    return LlamaCppEngine("m", arguments.model, options)


async def run(arguments: argparse.Namespace) -> None:
    """Decode the sample and print the counts."""
    found = list(cases(arguments.corpus))
    if arguments.sample and len(found) > arguments.sample:
        found = random.Random(0).sample(found, arguments.sample)
    engine = _engine(arguments)
    await engine.start()
    try:
        limit, at_once = arguments.max_tokens, arguments.at_once
        counts = await decode(engine, found, arguments.results, limit, at_once)
    finally:
        await engine.stop()
    for kind in _KINDS:
        print(f"{kind:8} {counts[kind]:5} {100 * counts[kind] / max(counts.total(), 1):6.2f} %")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--corpus", type=Path, required=True, help="folder with schemas")
    parser.add_argument("--model", type=Path, help="GGUF file")
    parser.add_argument("--seed", type=int, default=0, help="of documents written at random")
    parser.add_argument("--results", type=Path, required=True, help="file of JSON lines")
    parser.add_argument("--sample", type=int, help="so many of the schemas, chosen at random")
    parser.add_argument("--max-tokens", type=int, default=512, help="of each document")
    parser.add_argument("--threads", type=int, default=2, help="of the engine")
    parser.add_argument("--at-once", type=int, default=1, help="documents decoded together")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
