"""Rendering prompts: what a process of its own costs, and what hostile templates cost others.

    python bench/templates.py [template.jinja ...]

Prints, for each template, the milliseconds in this process and in a worker for
conversations of 3, 100 and 2,000 messages; then for each hostile template the
seconds until its error, the most memory its worker had, and the longest delay
of the event loop meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from causerie.chat.formats.registry import detect
from causerie.chat.rendering import Renderer, Renderers, in_process
from causerie.chat.template_worker import TemplateSource
from causerie.engines.registry import FAKE_TEMPLATE
from causerie.errors import ServiceError
from causerie.protocol.request import ChatRequest, Message

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _growing(start: str, step: str, end: str = "") -> str:
    """A template that is harmless until it is asked to do otherwise."""
    return (
        f"{CHATML}{{% if messages[0].content is string and 'boom' in messages[0].content %}}"
        f"{{% set n = namespace(v={start}) %}}{{% for i in range(99999) %}}"
        f"{{% set n.v = {step} %}}{{% endfor %}}{end}{{% endif %}}"
    )


HOSTILE = {
    "integer powers": _growing("7", "n.v * n.v"),
    "doubling by ~": _growing("'ab'", "n.v ~ n.v"),
    "doubling lists": _growing("[1]", "n.v + n.v"),
    "% with a width": _growing("1", "'%2000000000d' % 1"),
    "center": _growing("1", "'a'.center(2000000000)"),
    "tojson(indent)": _growing("[[1]]", "n.v | tojson(indent=2000000000)"),
    "slice": _growing("[1]", "[1] | slice(2000000000) | list"),
    "replace": _growing("'a' * 8000", "n.v.replace('a', n.v)"),
    "many large texts": _growing("[]", "n.v + ['a' * 900000]"),
    "a long loop": _growing("1", "range(99999) | sum"),
    "a hash of what is nested": _growing("(1, 1)", "(n.v, n.v) if i < 60 else {n.v: 1}"),
    "many small texts": _growing("[]", "n.v if n.v.append('a' * 9000) else n.v"),
}


def conversation(count: int, word: str = "hello") -> ChatRequest:
    """A conversation of so many messages, some 250 characters each."""
    told = (f"{word} " * 40).strip()
    roles = ("user", "assistant")
    messages = (Message(roles[at % 2], told) for at in range(count - 1))  # type: ignore[arg-type]  # both are roles
    return ChatRequest("bench", (*messages, Message("user", told)))


async def milliseconds(work: Callable[[], Awaitable[object]], count: int) -> float:
    """The median time of so many runs."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        await work()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)


def _renderer(renderers: Renderers, source: str) -> Renderer:
    source += "{# of others #}"
    return renderers.renderer(TemplateSource(source, "<s>", "</s>", detect(source).name))


async def benign(renderers: Renderers, name: str, source: str) -> None:
    """Compare both ways for one template."""
    local = in_process(TemplateSource(source, "<s>", "</s>", detect(source).name))
    began = time.perf_counter()
    foreign = _renderer(renderers, source)
    await foreign.prompt(conversation(3))
    print(f"{name[:32]:34}first prompt {1000 * (time.perf_counter() - began):7.0f} ms", end="")
    for count, runs in ((3, 200), (100, 50), (2000, 10)):
        request = conversation(count)
        here = await milliseconds(lambda r=request: local.prompt(r), runs)  # type: ignore[misc]  # lambda
        there = await milliseconds(lambda r=request: foreign.prompt(r), runs)  # type: ignore[misc]  # lambda
        print(f"   {count}: {here:.2f} here, {there:.2f} in a worker", end="")
    print()


def _peak(process: int) -> float:
    status = Path(f"/proc/{process}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return sum(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


async def hostile(renderers: Renderers, name: str, source: str) -> None:
    """Render one that stalls, and watch."""
    foreign = _renderer(renderers, source)
    await foreign.prompt(conversation(3))
    before = set(renderers.processes())
    began = last = time.perf_counter()
    boom = asyncio.ensure_future(foreign.prompt(conversation(1, "boom")))
    peak = worst = 0.0
    while not boom.done():
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        worst, last = max(worst, now - last - 0.001), now
        peak = max(peak, *map(_peak, before))
    failure = boom.exception()
    words = failure.message if isinstance(failure, ServiceError) else "none"
    reason = words.partition("used: ")[2].partition(". The template")[0]
    print(
        f"{name:26}{time.perf_counter() - began:6.2f} s{peak:8.0f} MB"
        f"{1000 * worst:8.1f} ms   {reason}"
    )


async def main(files: list[Path]) -> None:
    """Run all of it."""
    renderers = Renderers(most=2)
    try:
        await benign(renderers, "small", CHATML)
        await benign(renderers, "fake", FAKE_TEMPLATE)
        for file in files:
            await benign(renderers, file.stem, file.read_text(encoding="utf-8"))
        print(f"\n{'hostile':24}until error    memory  loop late")
        for name, source in HOSTILE.items():
            await hostile(renderers, name, source)
    finally:
        await renderers.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("templates", nargs="*", type=Path)
    asyncio.run(main(parser.parse_args().templates))
