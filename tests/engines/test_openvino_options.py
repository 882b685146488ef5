"""What is chosen for OpenVINO on a machine; the engine itself is not needed."""

from __future__ import annotations

import importlib

import pytest
from enginekit import HEADER

from causerie.engines import machine
from causerie.engines.openvino.engine import OpenVinoOptions, for_machine


@pytest.mark.parametrize(
    ("quota", "asked", "threads"), [(2, None, 2), (None, None, None), (16, None, None), (2, 5, 5)]
)
def test_threads_follow_a_quota_that_openvino_does_not_see(
    monkeypatch: pytest.MonkeyPatch, quota: int | None, asked: int | None, threads: int | None
) -> None:
    monkeypatch.setattr(machine, "allowed_cpus", lambda: range(8))
    monkeypatch.setattr(machine, "quota", lambda *_: quota)
    options = OpenVinoOptions(threads=asked)
    assert for_machine(HEADER.path, options, HEADER, 32768, 2**34).threads == threads


def test_openvino_has_no_package_to_send_statistics_with() -> None:
    with pytest.raises(ImportError):
        importlib.import_module("openvino_telemetry")
