"""Questions of a worker process to its parent, and the answers that it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

from causerie.errors import StoreUnavailable
from causerie.workers.messages import ParentAnswer, Subject, WorkerQuestion


class Questions:
    """Those that wait for an answer; ``send`` sends one to the parent."""

    def __init__(self, send: Callable[[WorkerQuestion], None]) -> None:
        self._send = send
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._numbers = count(1)
        self._loop = asyncio.get_running_loop()
        self._ended = False

    @property
    def waiting(self) -> int:
        """Return how many wait."""
        return len(self._waiting)

    def line(self, subject: Subject) -> QuestionLine:
        """Return the line to whoever answers for the subject."""
        return QuestionLine(self, subject)

    def ask(self, subject: Subject, body: bytes) -> Awaitable[bytes]:
        """Ask; the result raises :class:`StoreUnavailable` if the parent goes before it answers."""
        number = next(self._numbers)
        waiting = self._waiting[number] = self._loop.create_future()
        waiting.add_done_callback(lambda _: self._waiting.pop(number, None))
        if self._ended:
            waiting.set_exception(_gone())
        else:
            self._send(WorkerQuestion(number, subject, body))
        return waiting

    def tell(self, subject: Subject, body: bytes) -> None:
        """Send what has no answer."""
        self._send(WorkerQuestion(0, subject, body))

    def answered(self, answer: ParentAnswer) -> None:
        """The parent has answered."""
        waiting = self._waiting.get(answer.number)
        if waiting is not None and not waiting.done():  # else nobody waits for it any more
            waiting.set_result(answer.body)

    def end(self) -> None:
        """The parent has gone, and answers no further question either."""
        self._ended = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(_gone())


class QuestionLine:
    """Questions about one subject."""

    def __init__(self, questions: Questions, subject: Subject) -> None:
        self._questions = questions
        self._subject = subject

    def ask(self, data: bytes) -> Awaitable[bytes]:
        """As :meth:`Questions.ask`."""
        return self._questions.ask(self._subject, data)

    def tell(self, data: bytes) -> None:
        """As :meth:`Questions.tell`."""
        self._questions.tell(self._subject, data)


def _gone() -> StoreUnavailable:
    return StoreUnavailable("The service ends. Try again.")
