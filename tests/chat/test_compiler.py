"""Grammars compiled at a bounded price. The workers are real processes."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from casekit import first_of

from causerie.chat import compiler_worker
from causerie.chat.compiler import Compiler, Vocabulary
from causerie.chat.compiler_worker import TOO_COMPLEX
from causerie.chat.constraint import CallPlan, compose
from causerie.chat.formats.registry import by_name
from causerie.chat.schema import prepare, regex
from causerie.chat.worker_process import BOUNDS_WORK, serve
from causerie.errors import InvalidRequest, Overloaded

# Where a worker finds this module, and the kit that it imports.
_TESTS = os.pathsep.join(str(folder) for folder in Path(__file__).parents[:2])
_FINE = '%llguidance {}\nstart: "a" %json ' + prepare({"type": "object"}, param="p").text
_MULTIPLE = {"type": "integer", "multipleOf": 999_983}
_SLOW = "%llguidance {}\nstart: %json " + json.dumps(_MULTIPLE)  # as no schema is written


@pytest.fixture
async def compiler() -> AsyncIterator[Compiler]:
    made = Compiler(limit=1.0, patience=60.0)
    try:
        yield made
    finally:
        await made.stop()


async def _started(compiler: Compiler, path: str | None = None) -> None:
    vocabulary = Vocabulary(path)
    await asyncio.gather(*(worker.prepare(vocabulary) for worker in compiler._workers))


def _processes(compiler: Compiler) -> tuple[int, ...]:
    return tuple(worker.pid for worker in compiler._workers if worker.pid is not None)


def _grammar(schema: dict[str, object]) -> str:
    return "%llguidance {}\nstart: %json " + prepare(schema, param="p").text


async def _refusal(compiler: Compiler, grammar: str) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        await compiler.check(grammar, Vocabulary(), param="p")
    assert caught.value.code == "unsupported_schema"
    assert caught.value.param == "p"
    return caught.value


async def test_a_grammar_that_compiles_passes(compiler: Compiler) -> None:
    await compiler.check(_FINE, Vocabulary(), param="p")
    await compiler.check(_FINE, Vocabulary(), param="p")


async def test_control_tokens_by_id_are_known_without_a_vocabulary(compiler: Compiler) -> None:
    grammar = '%llguidance {}\nstart: "<[7]>" <[151645]> %json {"const": "<[9999999]>"}'
    await compiler.check(grammar, Vocabulary(), param="p")


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"properties": {"a": {"type": "integer", "minimum": 3, "maximum": 2}}, "required": ["a"],
          "type": "object"}, "#/properties/a"),
        ({"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/x~1y"},
          "$defs": {"x/y": {"type": "string", "minLength": 3, "maxLength": 2}}}, "#/$defs/x~1y"),
        ({"type": "string", "pattern": "^a$", "maxLength": 0}, "#"),
    ],
)  # fmt: skip
async def test_the_pointer_is_found(
    compiler: Compiler, schema: dict[str, object], pointer: str
) -> None:
    refused = await _refusal(compiler, 'x: "y"\n' + _grammar(schema))
    assert refused.metadata == {"pointer": pointer}
    assert refused.message.startswith(f"The schema at {pointer} cannot be enforced: ")


async def test_the_function_is_named(compiler: Compiler) -> None:
    long = {"type": "string", "pattern": "^a$", "minLength": 3}
    tools = {
        name: {"type": "object", "properties": {"a": each}, "required": ["a"]}
        for name, each in (("good", {"type": "string"}), ("bad", long))
    }
    calls = CallPlan(tools, required=False, parallel=True)
    grammar = compose(by_name("hermes"), {}, reasoning="none", calls=calls, answer=None)
    assert grammar
    refused = await _refusal(compiler, grammar)
    assert refused.message.startswith("Parameters of `bad`: The schema at #/properties/a cannot")


@pytest.mark.parametrize(
    "grammar",
    ['start: "a', "start: other", "", 'start: "a" & /b/', "start: /(?=a)/", "start: /[0-9]/ & /a/"],
)
async def test_errors_show_nothing_of_the_grammar(compiler: Compiler, grammar: str) -> None:
    refused = await _refusal(compiler, "%llguidance {}\n" + grammar)
    assert "\n" not in refused.message
    assert "llguidance" not in refused.message
    assert len(refused.message) < 300


async def test_errors_of_the_first_steps_are_seen(compiler: Compiler) -> None:
    """An engine would go on without the constraint."""
    options = [f'"{number} "' for number in range(4_000)]
    refused = await _refusal(compiler, "%llguidance {}\nstart: " + " | ".join(options))
    assert "too complex" in refused.message
    one = "%llguidance {}\nstart: OPTION\nOPTION: " + " | ".join(options)
    await compiler.check(one, Vocabulary(), param="p")


def _alternatives() -> list[dict[str, object]]:
    return [
        {"anyOf": [{"type": "object", "properties": {f"a{i}_{j}": {}}} for j in range(10)]}
        for i in range(8)
    ]


def _nested() -> str:
    nested = "a"
    for _ in range(5):
        nested = f"(?:{nested}){{1,1000}}"
    return nested


# Each is made where it is asked: they take a second together, in every process that collects tests.
_HOSTILE: dict[str, Callable[[], str]] = {
    "100,000 repeats": lambda: _grammar({"type": "string", "pattern": "^(ab?c{1,9}){1,100000}$"}),
    "allOf of anyOf": lambda: _grammar({"allOf": _alternatives()}),
    "enum": lambda: _grammar({"enum": [f"value {i}" for i in range(19_000)]}),
    "exponential pattern": lambda: _grammar({"type": "string", "pattern": "(a|b)*a(a|b){30}c"}),
    "multiples": lambda: _SLOW,
    "nested repeats": lambda: "%llguidance {}\nstart: " + regex(_nested(), param="p"),
    "properties": lambda: _grammar(
        {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(9_000)}}
    ),
}


@pytest.mark.parametrize("name", first_of(_HOSTILE))
async def test_hostile_grammars_are_decided(compiler: Compiler, name: str) -> None:
    """Refused, or harmless as it turns out: but decided, and the next check works."""
    async with asyncio.timeout(60):
        (outcome,) = await asyncio.gather(
            compiler.check(_HOSTILE[name](), Vocabulary(), param="p"), return_exceptions=True
        )
    assert outcome is None or "too complex" in str(outcome)
    await compiler.check(_FINE, Vocabulary(), param="p")


async def test_others_go_on_while_one_is_slow() -> None:
    compiler = Compiler(workers=2, limit=60.0)
    try:
        slow = asyncio.ensure_future(compiler.check(_SLOW, Vocabulary(), param="p"))
        for at in range(5):
            await compiler.check(_FINE + f' "{at}"', Vocabulary(), param="p")
        assert not slow.done()
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
    finally:
        await compiler.stop()


async def test_who_finds_no_worker_is_told_to_come_back() -> None:
    compiler = Compiler(workers=1, limit=60.0, patience=0.05)
    try:
        await _started(compiler)
        slow = asyncio.ensure_future(compiler.check(_SLOW, Vocabulary(), param="p"))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await compiler.check(_FINE, Vocabulary(), param="p")
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
    finally:
        await compiler.stop()


@pytest.mark.skipif(not BOUNDS_WORK, reason="time that passes is counted there")
async def test_a_worker_that_was_kept_from_working_has_its_time_left() -> None:
    compiler = Compiler(workers=1, limit=0.3, patience=60.0)
    try:
        await _started(compiler)
        (worker,) = _processes(compiler)
        os.kill(worker, signal.SIGSTOP)
        checked = asyncio.ensure_future(compiler.check(_FINE, Vocabulary(), param="p"))
        await asyncio.wait([checked], timeout=0.4)
        os.kill(worker, signal.SIGCONT)
        await checked
    finally:
        await compiler.stop()


@pytest.mark.skipif(not BOUNDS_WORK, reason="time that passes is counted there")
async def test_no_verdict_is_remembered_of_a_worker_that_did_not_work() -> None:
    compiler = Compiler(workers=1, limit=0.3, patience=0.01)
    try:
        await _started(compiler)
        (worker,) = _processes(compiler)
        os.kill(worker, signal.SIGSTOP)
        with pytest.raises(Overloaded):
            await compiler.check(_FINE, Vocabulary(), param="p")
        assert not compiler._verdicts_by_digest.size
    finally:
        await compiler.stop()


async def test_identical_checks_share_one_compilation(compiler: Compiler) -> None:
    results = await asyncio.gather(
        *(compiler.check(_SLOW, Vocabulary(), param=f"p{at}") for at in range(8)),
        return_exceptions=True,
    )
    assert all(isinstance(result, InvalidRequest) for result in results)
    assert {result.param for result in results if isinstance(result, InvalidRequest)} == {
        f"p{at}" for at in range(8)
    }


async def test_a_cancelled_check_leaves_the_work_to_the_next(compiler: Compiler) -> None:
    first = asyncio.ensure_future(compiler.check(_FINE, Vocabulary(), param="p"))
    second = asyncio.ensure_future(compiler.check(_FINE, Vocabulary(), param="p"))
    await asyncio.sleep(0)
    first.cancel()
    await second
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_verdicts_are_forgotten_by_size() -> None:
    compiler = Compiler(workers=1, cache_bytes=500)
    try:
        for at in range(5):
            await compiler.check(_FINE + f' "{at}"', Vocabulary(), param="p")
        assert compiler._verdicts_by_digest.size <= 500
    finally:
        await compiler.stop()


async def test_memory_is_bounded() -> None:
    """A worker that may hold next to nothing dies of a grammar that another compiles."""
    grammar = _HOSTILE["enum"]()
    small, usual = Compiler(workers=1, memory=1 << 20), Compiler(workers=1)
    try:
        refused = await _refusal(small, grammar)
        assert "too complex" in refused.message
        await usual.check(grammar, Vocabulary(), param="p")
    finally:
        await small.stop()
        await usual.stop()


async def test_a_model_vocabulary_is_read_by_the_named_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", _TESTS, prepend=os.pathsep)
    path = tmp_path / "vocabulary.json"
    path.write_text(json.dumps(["a", "b", "ab", "<end>"]))
    compiler = Compiler(reader=f"{__name__}:read_small", workers=1)
    try:
        await _started(compiler, str(path))
        fine = '%llguidance {}\nstart: "ab" <[3]>'
        await compiler.check(fine, Vocabulary(str(path)), param="p")
        with pytest.raises(InvalidRequest):
            await compiler.check('start: "c"', Vocabulary(str(path)), param="p")
    finally:
        await compiler.stop()


async def test_another_vocabulary_in_the_same_place_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", _TESTS, prepend=os.pathsep)
    path = tmp_path / "vocabulary.json"
    compiler = Compiler(reader=f"{__name__}:read_small", workers=1)
    try:
        path.write_text(json.dumps(["a", "b", "<end>"]))
        await compiler.check('start: "a"', Vocabulary(str(path), "ab"), param="p")
        with pytest.raises(InvalidRequest):
            await compiler.check('start: "c"', Vocabulary(str(path), "ab"), param="p")
        path.write_text(json.dumps(["b", "c", "<end>"]))
        await compiler.check('start: "c"', Vocabulary(str(path), "bc"), param="p")
        with pytest.raises(InvalidRequest):
            await compiler.check('start: "a"', Vocabulary(str(path), "bc"), param="p")
    finally:
        await compiler.stop()


class _Small:
    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tuple(token.encode() for token in tokens)
        self.types = (*(1 for _ in tokens[:-1]), 3)
        self.end = (len(tokens) - 1,)


def read_small(path: Path) -> _Small:
    """A vocabulary of a few tokens, as a worker imports its reader."""
    return _Small(json.loads(path.read_text()))


async def test_stopping_leaves_no_process(compiler: Compiler) -> None:
    await _started(compiler)
    processes = _processes(compiler)
    assert len(processes) == 2
    await compiler.stop()
    assert _processes(compiler) == ()
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
    await compiler.stop()


async def test_a_worker_that_dies_is_replaced(compiler: Compiler) -> None:
    await _started(compiler)
    for process in _processes(compiler):
        os.kill(process, signal.SIGKILL)
    for at in range(3):
        await compiler.check(_FINE + f' "{at}"', Vocabulary(), param="p")


def test_a_worker_ends_when_its_input_does() -> None:
    read, write = os.pipe()
    os.close(write)
    answers = io.BytesIO()
    with os.fdopen(read, "rb") as requests:
        serve(requests, answers, compiler_worker.CompilerWorker(None).answer)
    assert answers.getvalue() == b""


def test_a_worker_runs_where_processes_have_no_limits() -> None:
    lines = """
import sys
sys.platform, sys.modules["resource"] = "win32", None
from causerie.chat.compiler_worker import main
main("1", "")
"""
    ended = subprocess.run(
        [sys.executable, "-c", lines], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert ended.stderr == b""


_GREEDY = """
import sys, time
from causerie.chat.worker_process import watch_memory
watch_memory(int(sys.argv[1]))
kept = []
for _ in range(1000):
    kept.append(bytes(4 << 20) + b"x")
    time.sleep(0.001)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="nothing is watched there")
def test_a_process_whose_memory_the_system_does_not_bound_watches_itself() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _GREEDY, str(256 << 20)], check=False, capture_output=True
    )
    assert (ended.returncode, ended.stderr) == (70, b"")


async def test_a_replay_tells_a_grammar_that_was_not_kept_from_one_that_was_given_up(
    compiler: Compiler,
) -> None:
    """An engine that reaches the limits of the library goes on without the grammar."""
    many = range(2_500)
    crowded = '%llguidance {}\nstart: "some text" rest\nrest: ' + " | ".join(f"r{n}" for n in many)
    crowded += "".join(f'\nr{n}: "a" t{n}\nt{n}: "b{n}"' for n in many)

    async def fault(grammar: str, text: str) -> str | None:
        return await compiler.fault_of(grammar, list(text.encode()), text, Vocabulary())

    number = _grammar({"type": "object", "properties": {"a": {"type": "integer"}}})
    assert await fault(number, '{"a": 1') is None, "a part is none of the worse"
    assert await fault(number, '{"a": "x') == compiler_worker.NOT_KEPT
    assert await fault(crowded, "some textab1") == TOO_COMPLEX
    unlike = await compiler.fault_of(number, [7, 9], '{"a": "x', Vocabulary())
    assert unlike is None, "the tokens of an unknown vocabulary say nothing"
