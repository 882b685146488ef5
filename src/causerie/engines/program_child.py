"""A process that runs another program, and ends it and its process group when we end.

Reads one line of JSON from standard input, a
:class:`~causerie.engines.process.Program`, and runs it in a process group of its
own; what that writes goes to our standard error. Standard input then stays open;
when it ends, the parent is gone or has enough, and so has the group. Ends with the
program's own exit status.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial

from causerie.engines.child import die_with_parent, ignore_signals, stay_on

_NOT_FOUND = 127


def main() -> None:
    ignore_signals()
    program = json.loads(sys.stdin.readline())
    stay_on(program["cpus"])
    farewell = float(program["farewell_seconds"])
    try:
        process = subprocess.Popen(
            program["command"],
            cwd=program["folder"],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            stderr=sys.stderr,
            env={**os.environ, **program["environment"]},  # noqa: TID251 - handed on, not read
            start_new_session=True,
            # no other thread runs yet
            preexec_fn=partial(_set_child_signals, signal.SIGTERM if farewell else signal.SIGKILL),
        )
    except OSError as error:
        sys.stderr.write(f"Error: {program['command'][0]}: {error.strerror}\n")
        sys.exit(_NOT_FOUND)
    threading.Thread(target=_end_group_after_parent, args=(process, farewell), daemon=True).start()
    code = process.wait()
    _send_signal_to_group(process, signal.SIGKILL)  # what it left of its group
    sys.exit(code if code >= 0 else 128 - code)


def _set_child_signals(parent_death_signal: signal.Signals) -> None:
    # Our end must end the program too, also where we are killed.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with_parent(parent_death_signal)


def _end_group_after_parent(process: subprocess.Popen[bytes], farewell_seconds: float) -> None:
    while sys.stdin.readline():
        pass
    if farewell_seconds:
        _send_signal_to_group(process, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(farewell_seconds)
    _send_signal_to_group(process, signal.SIGKILL)


def _send_signal_to_group(process: subprocess.Popen[bytes], signal_number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # none of the group is left
        os.killpg(process.pid, signal_number)


if __name__ == "__main__":
    main()
