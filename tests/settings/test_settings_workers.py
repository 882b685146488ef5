"""Several workers: what they cannot keep is refused by name, before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from causerie.settings.load import load
from causerie.settings.problems import SettingsError
from causerie.settings.rules import worker_count

BASE = """
[[doors]]
name = "gateway"
kind = "gateway"
[[providers]]
name = "there"
base_url = "http://127.0.0.1:9/v1"
max_concurrent = 3
[[aliases]]
id = "fast"
targets = [{ provider = "there", model = "m" }]
"""
SHARED = '[shared]\nurl = "valkey://127.0.0.1:6379/0"\n'
ACCOUNTS = '[store]\nfolder = "data"\n[[doors]]\nname = "hosted"\nkind = "hosted"\n'
LIMITED_DOOR = """[[doors]]
name = "other"
kind = "gateway"
prefix = "/other"
[doors.limits]
concurrent = 9
"""
LIMITED_ALIAS = """[[aliases]]
id = "slow"
targets = [{ provider = "there", model = "m" }]
[aliases.limits]
requests_per_minute = 9
"""
ELSEWHERE = """[[models]]
id = "m"
engine = "vllm"
ref = "hf:a/b"
[models.vllm]
address = "http://127.0.0.1:9"
"""

REFUSED = {
    "a model of this machine": (
        '[[models]]\nid = "m"\nengine = "fake"\n',
        "models[0]: is run by this machine, and each of 2 workers would load it",
    ),
    "a server of vLLM that the service starts": (
        '[[models]]\nid = "m"\nengine = "vllm"\nref = "hf:a/b"\n',
        "models[0]: is run by this machine",
    ),
    "accounts without a shared count": (ACCOUNTS, "server.workers: is 2, and keys of accounts"),
    "limits of a door without a shared count": (
        LIMITED_DOOR,
        "doors[1].limits: count in each of 2 workers for itself; set `shared.url`",
    ),
    "limits of an alias without a shared count": (
        LIMITED_ALIAS,
        "aliases[1].limits: count in each of 2 workers for itself",
    ),
}
HELD = {
    "models of providers": "",
    "a server of vLLM that others run": ELSEWHERE,
    "accounts with a shared count": ACCOUNTS + SHARED,
    "limits with a shared count": LIMITED_DOOR + LIMITED_ALIAS + SHARED,
}


def problems(folder: Path, text: str, workers: int) -> list[str]:
    """Return the problems of a configuration."""
    file = folder / "causerie.toml"
    file.write_text(f"[server]\nworkers = {workers}\n{BASE}{text}")
    try:
        _ = load(file=file, environ={})
    except SettingsError as refused:
        return [f"{one.key}: {one.advice}" for one in refused.problems]
    return []


@pytest.mark.parametrize("case", REFUSED)
def test_what_several_workers_cannot_keep_is_refused_by_name(case: str, tmp_path: Path) -> None:
    text, expected = REFUSED[case]
    assert problems(tmp_path, text, workers=1) == []
    (found,) = problems(tmp_path, text, workers=2)
    assert found.startswith(expected)


@pytest.mark.parametrize("case", HELD)
def test_what_several_workers_keep_is_accepted(case: str, tmp_path: Path) -> None:
    assert problems(tmp_path, HELD[case], workers=2) == []


def test_each_worker_has_at_least_one_slot_of_a_provider(tmp_path: Path) -> None:
    assert problems(tmp_path, "", workers=3) == []
    (found,) = problems(tmp_path, "", workers=4)
    assert found == (
        "providers[0].max_concurrent: is less than the 4 workers, among whom it is divided"
    )


def test_auto_is_one_worker_for_each_core_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "causerie.toml"
    file.write_text('[server]\nworkers = "auto"\n' + BASE)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 5}, raising=False)
    assert worker_count(load(file=file, environ={}).settings.server) == 3
    monkeypatch.delattr("os.sched_getaffinity")
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert worker_count(load(file=file, environ={}).settings.server) == 1
