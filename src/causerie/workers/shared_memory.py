"""Memory of several processes, and the lock that protects it.

The lock is a POSIX mutex in the memory itself, *robust* and shared between processes (POSIX.1-2017,
``pthread_mutexattr_setrobust``): where a process dies with it, the next one gets it and is told.
An uncontended lock takes no system call. Linux only.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import time
from collections.abc import Callable
from types import TracebackType

from causerie.errors import StoreUnavailable

MEMBERS = 64
"""Processes at most, the parent included."""
_MUTEX_BYTES = 128  # more than any C library takes
_MUTEX_WORDS = _MUTEX_BYTES // 8
_ATTRIBUTE_BYTES = 64
_SHARED = 1  # PTHREAD_PROCESS_SHARED
_ROBUST = 1  # PTHREAD_MUTEX_ROBUST
_WAIT_SECONDS = 1.0  # the holder takes microseconds, unless it has been stopped


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class SharedMemory:
    """``words`` of 64 bits behind a file descriptor; ``with memory:`` holds its lock.

    ``numbers`` and ``seconds`` show the same words as integers and as floating-point numbers.
    All of them are 0 at first. ``repairs`` are called with the lock held, where a process died
    while it held it.
    """

    def __init__(self, descriptor: int, words: int) -> None:
        self.descriptor = descriptor
        self.words = words
        self._map = mmap.mmap(descriptor, _MUTEX_BYTES + 8 * words)
        whole = memoryview(self._map)
        self.numbers = whole[_MUTEX_BYTES:].cast("q")
        self.seconds = whole[_MUTEX_BYTES:].cast("d")
        self.repairs: list[Callable[[], None]] = []
        library = ctypes.CDLL(None)
        self._library = library
        self._mutex = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(whole)))
        self._try, self._unlock = library.pthread_mutex_trylock, library.pthread_mutex_unlock

    @classmethod
    def create(cls, words: int) -> SharedMemory:
        """Make memory that other processes can open by its descriptor."""
        descriptor = os.memfd_create("causerie", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, _MUTEX_BYTES + 8 * words)
        memory = cls(descriptor, words)
        memory._initialize()
        return memory

    def _initialize(self) -> None:
        library, attributes = self._library, ctypes.create_string_buffer(_ATTRIBUTE_BYTES)
        _check(library.pthread_mutexattr_init(attributes))
        _check(library.pthread_mutexattr_setpshared(attributes, _SHARED))
        _check(library.pthread_mutexattr_setrobust(attributes, _ROBUST))
        _check(library.pthread_mutex_init(self._mutex, attributes))

    def __enter__(self) -> None:
        """Take the lock; raise :class:`StoreUnavailable` where its holder has been stopped."""
        result = self._try(self._mutex)
        if result == errno.EBUSY:
            result = self._wait()
        if result == errno.EOWNERDEAD:
            _check(self._library.pthread_mutex_consistent(self._mutex))
            for repair in self.repairs:
                repair()
        elif result:
            raise StoreUnavailable("Another process of the service does not go on. Try again.")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._unlock(self._mutex)

    def _wait(self) -> int:
        until = time.clock_gettime(time.CLOCK_REALTIME) + _WAIT_SECONDS
        spec = _Timespec(int(until), int(until % 1 * 1e9))
        result: int = self._library.pthread_mutex_timedlock(self._mutex, ctypes.byref(spec))
        return result

    def close(self) -> None:
        """Give the memory back once nobody uses it; the descriptor is closed."""
        os.close(self.descriptor)

    def clear(self, start: int, stop: int) -> None:
        """Set words to 0."""
        self.numbers[start:stop] = memoryview(bytes(8 * (stop - start))).cast("q")


def _check(result: int) -> None:
    if result:
        raise OSError(result, os.strerror(result))
