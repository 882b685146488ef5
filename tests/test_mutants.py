"""Faults are listed for every room, and for everything that always holds."""

from __future__ import annotations

import re
from pathlib import Path

from mutants import ROOT, read

MAP = (Path(__file__).parents[1] / "ARCHITECTURE.md").read_text(encoding="utf-8")


def test_every_room_and_every_invariant_has_a_fault() -> None:
    listed = read()
    rooms = set(re.findall(r"^\| `([a-z_/]+)` \|", MAP, re.MULTILINE))
    holds = re.findall(r"^(\d+)\. ", MAP.partition("## What always holds")[2], re.MULTILINE)
    assert rooms
    assert holds
    assert not rooms - {each.room for each in listed}
    assert {int(one) for one in holds} == {each.invariant for each in listed} - {None}
    assert len(listed) >= 60


def test_every_fault_fits_the_source() -> None:
    troubles = [f"{each}: {found}" for each in read() if (found := each.trouble(ROOT))]
    assert not troubles
