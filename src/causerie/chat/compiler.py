"""Checks at a bounded cost that composed grammars compile.

An engine that cannot compile a grammar generates without one, and a slow compilation blocks all
requests. So every grammar is compiled first in a process with a limit of processor time and memory.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakValueDictionary

import msgspec

from causerie.chat.answer import unsupported_schema
from causerie.chat.compiler_worker import TOO_COMPLEX
from causerie.chat.schema.bounded_cache import BoundedCache
from causerie.chat.schema.keywords import SchemaRefused
from causerie.chat.worker import Died, WorkerProcess
from causerie.chat.worker_process import BOUNDS_WORK
from causerie.errors import InternalError, Overloaded

_START_SECONDS = 30.0
_ENTRY_BYTES = 200  # of a remembered verdict, alongside its text


class GrammarVerdict(msgspec.Struct, frozen=True):
    """Why and where a grammar was refused, and of which function; without ``reason`` it is fine."""

    reason: str | None = None
    pointer: str | None = None
    function: str | None = None


class Vocabulary(NamedTuple):
    """Tokenizer vocabulary, by its source; without a path, single bytes are the tokens."""

    path: str | None = None  # of its source file
    words: str = ""  # its identity among others of the same file


@dataclass(eq=False, kw_only=True)
class Compiler:
    """Checks grammars in ``workers`` processes, with ``limit`` seconds of processor time each.

    ``reader`` names the function (``module:name``) that reads a vocabulary
    (:class:`causerie.chat.compiler_worker.WorkerVocabulary`) from its path; without one, single
    bytes are the tokens. ``memory`` is a worker's address space in bytes, ``patience`` how many
    seconds a check may wait for a worker, and then for its answer where others have the processor,
    ``cache_bytes`` what verdicts may take.
    """

    reader: str = ""
    workers: int = 2
    limit: float = 1.0
    patience: float = 5.0
    memory: int = 2 << 30
    cache_bytes: int = 4 << 20

    def __post_init__(self) -> None:
        self._verdicts_by_digest = BoundedCache[bytes, GrammarVerdict](self.cache_bytes)
        self._locks_by_digest = WeakValueDictionary[bytes, asyncio.Lock]()
        self._idle_worker_queue: asyncio.Queue[_Worker] = asyncio.Queue()
        self._workers = [_Worker(self.reader, self.memory) for _ in range(self.workers)]
        for worker in self._workers:
            self._idle_worker_queue.put_nowait(worker)

    async def stop(self) -> None:
        """End all worker processes, so that running checks fail; may be called again."""
        await asyncio.gather(*(worker.kill() for worker in self._workers))

    async def check(self, grammar: str, vocabulary: Vocabulary, *, param: str) -> None:
        """Raise an error unless the grammar compiles and its first steps are quick.

        ``param`` is the field of the request for errors. Raises ``InvalidRequest``
        (``unsupported_schema``), or ``Overloaded`` when all workers stay busy.
        """
        verdict = await self._find_verdict(grammar, vocabulary)
        if verdict.reason is None:
            return
        reason = verdict.reason
        if verdict.pointer is None:
            reason = f"The answer's constraint cannot be enforced: {reason}"
        function = verdict.function or ""
        raise unsupported_schema(SchemaRefused(param, reason, verdict.pointer, function))

    async def fault_of(
        self,
        grammar: str,
        tokens: Sequence[int],
        text: str,
        vocabulary: Vocabulary,
        resumed: str = "",
    ) -> str | None:
        """Return why tokens, which have this text, do not follow a grammar behind ``resumed``.

        That is :data:`TOO_COMPLEX` if an engine reaches its limits there. ``None``: they do, or
        nobody knows. Raises ``Overloaded``.
        """
        said = {"resumed": resumed, "tokens": tokens, "text": text}
        return (await self._compile_in_worker(grammar, vocabulary, **said)).reason

    async def _find_verdict(self, grammar: str, vocabulary: Vocabulary) -> GrammarVerdict:
        digest = hashlib.blake2b(grammar.encode("utf-8", "surrogatepass"), digest_size=16)
        known_by = f"\0{vocabulary.path or ''}\0{vocabulary.words}"
        digest.update(known_by.encode("utf-8", "surrogatepass"))
        key = digest.digest()
        # One compiles, the others wait; were it cancelled, the next of them would.
        async with self._locks_by_digest.setdefault(key, asyncio.Lock()):
            known = self._verdicts_by_digest.get(key)
            if known is None:
                known = await self._compile_in_worker(grammar, vocabulary)
                size = _ENTRY_BYTES + len(f"{known.reason}{known.pointer}{known.function}")
                self._verdicts_by_digest.keep(key, known, size)
            return known

    async def _compile_in_worker(
        self, grammar: str, vocabulary: Vocabulary, **reply: object
    ) -> GrammarVerdict:
        try:
            async with asyncio.timeout(self.patience):
                worker = await self._idle_worker_queue.get()
        except TimeoutError:
            raise _build_overload_error() from None
        try:
            verdict = await self._ask_worker(worker, grammar, vocabulary, reply)
            await worker.prepare(vocabulary)  # after a kill, whoever caused it waits, not the next
        finally:
            self._idle_worker_queue.put_nowait(worker)
        return verdict

    async def _ask_worker(
        self, worker: _Worker, grammar: str, vocabulary: Vocabulary, reply: Mapping[str, object]
    ) -> GrammarVerdict:
        question = {"grammar": grammar, "vocabulary": vocabulary.path, "seconds": self.limit}
        asked = json.dumps({**question, **reply}).encode()
        for _ in range(2):  # one that died may have been dead before; two died of the grammar
            await worker.prepare(vocabulary)
            try:
                async with asyncio.timeout(self.limit + self.patience * BOUNDS_WORK):
                    answer = await worker.ask(asked)
            except TimeoutError:
                if BOUNDS_WORK:  # it was kept from working; the grammar may be fine
                    raise _build_overload_error() from None
                break
            except Died as died:
                if died.worked:
                    break
                continue
            return msgspec.json.decode(answer, type=GrammarVerdict)
        if reply:  # nobody knows whether it would have followed
            raise _build_overload_error()
        return GrammarVerdict(TOO_COMPLEX)


def _build_overload_error() -> Overloaded:
    return Overloaded("Too many grammars are being compiled; try again.")


class _Worker(WorkerProcess):
    def __init__(self, reader: str, memory: int) -> None:
        super().__init__("causerie.chat.compiler_worker", str(memory), reader)
        self._loaded_vocabulary_id_by_path: dict[str, str] = {}  # what was read, by path

    async def prepare(self, vocabulary: Vocabulary) -> None:
        if await self.start():
            self._loaded_vocabulary_id_by_path = {}
        path = vocabulary.path or ""
        if self._loaded_vocabulary_id_by_path.get(path) == vocabulary.words:
            return
        try:
            async with asyncio.timeout(_START_SECONDS):
                await self.ask(json.dumps({"load": path}).encode())
        except TimeoutError:
            raise _build_overload_error() from None
        except Died:
            raise InternalError("The grammar compiler does not start.") from None
        self._loaded_vocabulary_id_by_path[path] = vocabulary.words
