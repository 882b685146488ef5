"""Commands as people run them: in a process of their own, without a terminal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryFile

from starter import PROGRAM, Process, Streams, forked, of_python


async def run(
    *words: str, folder: Path | None = None, stdin: str = "", **environ: str
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``causerie`` with these words.

    It is a fork of what has imported the commands; to start an interpreter takes longer than what
    most of them do.
    """
    with TemporaryFile() as typed, TemporaryFile() as out, TemporaryFile() as err:
        typed.write(stdin.encode("utf-8", "surrogateescape"))
        typed.seek(0)
        environment = {**os.environ, **environ}
        process = _started(words, environment, (typed, out, err), folder or Path.cwd())
        code = await asyncio.to_thread(process.wait)
        said = []
        for stream in (out, err):
            stream.seek(0)
            said.append(stream.read().decode())
    return code, said[0], said[1]


def _started(
    words: Sequence[str], environment: Mapping[str, str], streams: Streams, folder: Path
) -> Process:
    if of_python(environment) == of_python(os.environ):
        return forked(words, environment, streams, folder)
    stdin, stdout, stderr = streams  # only an interpreter's start reads those variables
    command = [*PROGRAM, *words]
    return Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, cwd=folder, env=environment)
