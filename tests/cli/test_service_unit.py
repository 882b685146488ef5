"""``causerie service``: the files for systemd and launchd, and what is told to them."""

from __future__ import annotations

import os
import plistlib
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from service import free_port
from typer.testing import CliRunner, Result

from causerie.cli.root import app


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home whose service managers write down commands; with a file `fails` they fail."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("systemctl", "launchctl"):
        tells = f'echo "{name} $@" >> {tmp_path}/told'
        fails = f'[ ! -e {tmp_path}/fails ] || {{ echo "no bus" >&2; exit 1; }}'
        (tools / name).write_text(f"#!/bin/sh\n{tells}\n{fails}\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner(env={"TERM": "dumb"}).invoke(app, ["service", *words])


def told(home: Path) -> list[str]:
    return (home / "told").read_text().splitlines()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="systemd")
def test_a_unit_of_the_user(home: Path) -> None:
    assert "there is no" in run("uninstall").stderr
    result = run("install", "--", "--port", "9000", "--config", "/a b/100% $x.toml")
    assert result.exit_code == 0, result.output
    unit = home / "config/systemd/user/causerie.service"
    [start] = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    assert shlex.split(start)[0] == sys.executable
    assert shlex.split(start)[-5:] == ["serve", "--port", "9000", "--config", "/a b/100%% $$x.toml"]
    commands = ["daemon-reload", "enable causerie", "restart causerie"]
    assert told(home) == [f"systemctl --user {each}" for each in commands]
    assert run("install", "--show").stdout.startswith("[Unit]\n")
    assert run("uninstall").exit_code == 0
    assert not unit.exists()
    assert told(home)[-1] == "systemctl --user disable --now causerie"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="systemd")
def test_a_manager_that_fails_is_named(home: Path) -> None:
    (home / "fails").touch()
    result = run("install")
    assert result.exit_code == 1
    assert "`systemctl --user daemon-reload` failed: no bus. Nothing was started" in result.stderr
    assert not (home / "config/systemd/user/causerie.service").exists()


def test_an_agent_of_the_user(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    result = run("install", "--", "--port", "9000")
    assert result.exit_code == 0, result.output
    file = home / "Library/LaunchAgents/causerie.plist"
    agent = plistlib.loads(file.read_bytes())
    assert agent["ProgramArguments"][-3:] == ["serve", "--port", "9000"]
    assert agent["RunAtLoad"] is True
    user = f"gui/{os.getuid()}"
    assert told(home) == [f"launchctl bootstrap {user} {file}"]
    assert run("uninstall").exit_code == 0
    assert told(home)[-1] == f"launchctl bootout {user}/causerie"


def test_other_systems_are_told_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    result = run("install")
    assert (result.exit_code, "neither systemd nor launchd" in result.stderr) == (2, True)


@pytest.mark.full
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="systemd")
def test_what_the_unit_starts_answers(home: Path) -> None:
    """As after a start of the machine: its command, in the home folder, in an own environment."""
    port, config = free_port(), home / "service.toml"
    config.write_text('[[models]]\nid = "a"\nengine = "fake"\n')
    run("install", "--", "--port", str(port), "--config", str(config))
    unit = (home / "config/systemd/user/causerie.service").read_text()
    [start] = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    inherited = ("HOME", "PATH", "XDG_RUNTIME_DIR", "PYTHONPATH")
    environ = {name: os.environ[name] for name in inherited if name in os.environ}
    process = subprocess.Popen(shlex.split(start), cwd=home, env=environ)
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models") as response:
                    assert b'"a"' in response.read()
                    break
            except OSError:
                assert process.poll() is None
                assert time.monotonic() < deadline
            time.sleep(0.1)  # another process: there is nothing to await but its answer
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
