"""The inside of a process that may be killed at any moment: its limits and its one loop.

Requests are read from standard input and answered on standard output, one at a
time; each is a length of four bytes and as many bytes. The loop ends when the
input does, so the process never outlives the service.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import BinaryIO

if sys.platform != "win32":  # which has no such limits
    import resource

FRAME = struct.Struct(">I")


def serve(requests: BinaryIO, answers: BinaryIO, answer: Callable[[bytes], bytes]) -> None:
    """Answer until the input ends."""
    while len(head := requests.read(FRAME.size)) == FRAME.size:
        (length,) = FRAME.unpack(head)
        body = answer(requests.read(length))
        answers.write(FRAME.pack(len(body)) + body)
        answers.flush()


def limit_memory(memory: int) -> None:
    """Have at most ``memory`` bytes of address space, where the system can say so, and no dumps."""
    if sys.platform != "win32":
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
