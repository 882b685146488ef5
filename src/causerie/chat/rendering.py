"""Chooses where a model's prompts are rendered: here, or in child processes if not our template."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import msgspec

from causerie.chat import template_worker as messages
from causerie.chat.formats.format import ModelFormat
from causerie.chat.prompt import Prompt, before_call, prompt_of
from causerie.chat.template import ChatTemplate, TooMuch
from causerie.chat.worker import Died, WorkerProcess
from causerie.errors import InternalError, Overloaded, TemplateFailed
from causerie.http.event_loop import LARGE, offload
from causerie.protocol.request import ChatRequest

# SHA-256 of the templates that come with this program: those of the model that is served where
# nothing is configured and of the engine `fake`, and none at all, for which ChatML stands.
_OWN = {
    "872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788",
    "ed8afda8c893d8a559203c94b03d29ff08eb4c4ec1be92435e592744e45b5050",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
}
_LONG = 200_000  # characters; a longer conversation takes milliseconds, so it goes to a thread
_MANY = 200  # messages, likewise
_MANY_TOOLS = 32  # likewise: each is copied, measured and written as JSON


class Renderer(Protocol):
    """Renders the prompts of one model.

    Raises ``InvalidRequest`` where the template refuses the messages, and
    ``TemplateFailed`` where it takes more than it may.
    """

    async def prompt(self, request: ChatRequest) -> Prompt:
        """Return the rendered prompt of a request."""

    @property
    def before_call(self) -> str | None:
        """The text that the template writes between a message's text and its call.

        ``None`` where that is not known, or no prompt was rendered yet.
        """


@dataclass(frozen=True, slots=True)
class OwnRenderer:
    """Renders in this process, a long conversation in a thread, so that nobody else waits."""

    template: ChatTemplate
    form: ModelFormat

    async def prompt(self, request: ChatRequest) -> Prompt:
        work = partial(prompt_of, self.template, self.form, request)
        with template_failures(request.model):
            many = len(request.messages) > _MANY or len(request.tools) > _MANY_TOOLS
            long = many or sum(len(message.text) for message in request.messages) > _LONG
            return await offload(work) if request.large or long else work()

    @property
    def before_call(self) -> str | None:
        return before_call(self.template, self.form)


MakeRenderer = Callable[[messages.TemplateSource], Renderer]
"""Makes the renderer of a template; raises :class:`ValueError` where that is none."""


def in_process(source: messages.TemplateSource) -> Renderer:
    """Return a renderer in this process, for a template that is known to be harmless."""
    return OwnRenderer(*source.compiled())


def is_own(source: str) -> bool:
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest() in _OWN


@contextmanager
def template_failures(model: str) -> Iterator[None]:
    """Raise a rendering's :class:`TooMuch` as ``TemplateFailed``."""
    try:
        yield
    except TooMuch as much:
        raise TemplateFailed(model, str(much)) from None


# A template that does not come with this program runs in a process of its own, which is killed when
# it takes too much time or memory. So it costs its own model's requests an error, and nobody else
# anything. A template that fails its first test fails every request at once for a minute.

_START_SECONDS = 30.0
_GRACE = 0.25  # seconds that a rendering may go on when nobody waits for it any more
_CONDEMNED_SECONDS = 60.0
_EACH = 2  # processes for a template; the second only starts while the first is busy


@dataclass(eq=False, kw_only=True)
class Renderers:
    """Makes renderers, and owns the processes of those that need one.

    A rendering takes ``deadline`` seconds at most, the test of a template ``test_deadline``.
    ``memory`` is a process's address space in bytes, ``patience`` how many seconds a request may
    wait for a process of its model's, ``most`` how many processes run at once; beyond them those
    that were idle for longest end.
    """

    deadline: float = 3.0
    test_deadline: float = 10.0
    memory: int = 1 << 30
    patience: float = 5.0
    most: int = 8
    jobs: set[asyncio.Task[messages.Answer]] = field(init=False, default_factory=set)
    # Those that have processes, the one that was used last at the end.
    _renderers: OrderedDict[_ForeignRenderer, None] = field(init=False, default_factory=OrderedDict)

    def renderer(self, source: messages.TemplateSource) -> Renderer:
        """Return a renderer: in this process for a template of ours, else in child processes."""
        return in_process(source) if is_own(source.source) else _ForeignRenderer(self, source)

    def processes(self) -> tuple[int, ...]:
        return tuple(pid for each in self._renderers for pid in each.processes())

    async def make_room(self, user: _ForeignRenderer) -> None:
        """Note that a renderer will start a process, and end idle processes beyond the limit."""
        self._renderers[user] = None
        self._renderers.move_to_end(user)
        for each in list(self._renderers):
            if len(self.processes()) < self.most:
                return
            await each.rest()

    async def stop(self) -> None:
        """End all processes; renderings under way fail. May be called again."""
        jobs = list(self.jobs)
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        await asyncio.gather(*(each.rest() for each in list(self._renderers)))


class _ForeignRenderer:
    def __init__(self, owner: Renderers, source: messages.TemplateSource) -> None:
        self.before_call: str | None = None
        self._process_owner = owner
        self._template_source = source
        self._rejection_and_expiry: tuple[str, float] = "", 0.0  # why, and until when
        self._workers = [
            WorkerProcess("causerie.chat.template_worker", str(owner.memory)) for _ in range(_EACH)
        ]
        self._free_workers: asyncio.LifoQueue[WorkerProcess] = asyncio.LifoQueue()
        for worker in self._workers:
            self._free_workers.put_nowait(worker)

    async def prompt(self, request: ChatRequest) -> Prompt:
        ask = messages.Ask.of(request)
        question = await offload(messages.encode, ask) if request.large else messages.encode(ask)
        with template_failures(request.model):
            reason, until = self._rejection_and_expiry
            if time.monotonic() < until:
                raise TooMuch(reason)
            answer = await self._ask_free_worker(question, request.model)
            match answer:
                case Prompt():
                    return answer
                case messages.Refusal():
                    raise answer.error()
                case messages.Costly():
                    raise TooMuch(answer.reason)
        raise InternalError("The process that renders templates answers something else.")

    def processes(self) -> tuple[int, ...]:
        return tuple(worker.pid for worker in self._workers if worker.pid is not None)

    async def rest(self) -> None:
        idle = [self._free_workers.get_nowait() for _ in range(self._free_workers.qsize())]
        try:
            for worker in idle:
                await worker.kill()
        finally:
            for worker in idle:
                self._free_workers.put_nowait(worker)

    async def _ask_free_worker(self, question: bytes, model_id: str) -> messages.Answer:
        try:
            async with asyncio.timeout(self._process_owner.patience):
                worker = await self._free_workers.get()
        except TimeoutError:
            raise Overloaded(
                f"Too many prompts of {model_id!r} are being rendered; try again."
            ) from None
        job = asyncio.ensure_future(self._ask_worker(worker, question))  # noqa: TID251 - stop() ends it
        self._process_owner.jobs.add(job)
        job.add_done_callback(self._process_owner.jobs.discard)
        job.add_done_callback(lambda job: job.cancelled() or job.exception())  # it is told here
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            # Most are done at once, and to kill the process would cost whoever comes next.
            asyncio.get_running_loop().call_later(_GRACE, job.cancel)
            raise

    async def _ask_worker(self, worker: WorkerProcess, question: bytes) -> messages.Answer:
        try:
            for _ in range(2):  # one that died may have been dead before; two died of the template
                try:
                    await self._prepare_worker(worker)
                    return await _ask_within(worker, question, self._process_owner.deadline)
                except Died:
                    continue
            raise TooMuch("its process died, probably for want of memory")
        finally:
            self._free_workers.put_nowait(worker)

    async def _prepare_worker(self, worker: WorkerProcess) -> None:
        if worker.pid is not None:
            return
        await self._process_owner.make_room(self)
        _ = await worker.start()
        try:
            _ = await _ask_within(worker, messages.encode(messages.Hello()), _START_SECONDS)
        except (TooMuch, Died):
            raise InternalError("The process that renders templates does not start.") from None
        try:
            source = messages.encode(self._template_source)
            answer = await _ask_within(worker, source, self._process_owner.test_deadline)
        except TooMuch as much:
            answer = messages.Costly(str(much))
        except Died:
            answer = messages.Costly("it takes more memory than there is for it")
        if isinstance(answer, messages.Costly):
            self._rejection_and_expiry = answer.reason, time.monotonic() + _CONDEMNED_SECONDS
            await worker.kill()
            raise TooMuch(answer.reason)
        if isinstance(answer, messages.Ready):
            self.before_call = answer.before_call


async def _ask_within(worker: WorkerProcess, question: bytes, seconds: float) -> messages.Answer:
    try:
        async with asyncio.timeout(seconds):
            answer = await worker.ask(question)
        read = partial(messages.read_answer, answer)
        return read() if len(answer) <= LARGE else await offload(read)
    except TimeoutError:
        raise TooMuch(f"it took more than {seconds:g} seconds") from None
    except msgspec.DecodeError:
        await worker.kill()
        raise Died from None
