"""Commands to a running service and its answers, by a socket in a folder of the user.

Both ends are here, the facts of a service that commands show, and the place of a worker process,
which has such a socket too. One line of JSON asks, one
answers. Only the user who runs the service can reach the socket.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec
import structlog
from msgspec import Struct

from causerie.engines.base import EngineStatus
from causerie.errors import Overloaded
from causerie.protocol.alike import alike
from causerie.settings.environment import WORKER, variables
from causerie.settings.tree import ModelSettings

if sys.platform != "win32":
    import fcntl

log = structlog.get_logger(__name__)

KEY_SUFFIX = ".key"
"""Of the file beside a socket that holds the key of its service."""
_SUFFIX = ".sock"
_CHATS = "chats.lock"
_SECONDS_TO_ASK = 5.0
_METRICS_SECONDS = 10.0

A = TypeVar("A")


class ControlFailed(Exception):
    """A service could not be asked; the text is one sentence for a person."""


class ControlSocket(Struct, frozen=True):
    path: Path
    pid: int


@asynccontextmanager
async def answering(
    folder: Path, answer: Callable[[str], Awaitable[object]], name: str | None = None
) -> AsyncIterator[Path | None]:
    """Answer commands at a socket while the block runs; yield its path.

    ``name`` hides it from commands. ``None``: there can be no socket, which is logged.
    """

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_SECONDS_TO_ASK):
                line = await reader.readline()
            if line:
                wanted = msgspec.json.decode(line, type=str)
                writer.write(msgspec.json.encode(await answer(wanted)))
                await writer.drain()
        except (OSError, TimeoutError, ValueError) as error:  # DecodeError is a ValueError
            log.warning("a command was not understood", why=str(error))
        finally:
            writer.close()

    path = folder / (name or f"{os.getpid()}{_SUFFIX}")
    try:
        if not hasattr(socket, "AF_UNIX"):
            raise OSError("this system has no sockets with a path")
        own_folder(folder)
        path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(handle, path=path)
    except OSError as error:
        log.warning("no socket for `causerie reload`; SIGHUP reloads too", why=str(error))
        yield None
        return
    path.chmod(0o600)
    try:
        yield path
    finally:
        server.close()
        await server.wait_closed()
        path.unlink(missing_ok=True)


def sockets(folder: Path) -> Sequence[ControlSocket]:
    """Return the sockets of running services of this user; remove those of ended ones.

    None is asked in the folder of another user, to whom commands would send prompts and keys.
    """
    if not _is_owned_by_user(folder):
        return []
    found = []
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        with suppress(ValueError):
            found.append(ControlSocket(path, int(path.name.removesuffix(_SUFFIX))))
    return [one for one in found if _is_listening_else_remove(one.path)]


def asked(path: Path, what: str, kind: type[A], seconds: float) -> A:
    """Return the answer of the service behind the socket; raise :class:`ControlFailed`.

    ``what`` is ``facts``, ``metrics``, ``reload``, ``stop``, or ``load`` or ``unload`` and a
    model's id.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(seconds)
            connection.connect(str(path))
            connection.sendall(msgspec.json.encode(what) + b"\n")
            received = b"".join(iter(lambda: connection.recv(65536), b""))
        return msgspec.json.decode(received, type=kind)
    except TimeoutError:
        raise ControlFailed(f"the service has not answered within {seconds:g} s") from None
    except (OSError, msgspec.DecodeError) as error:
        raise ControlFailed(f"the service could not be asked: {error}") from error


@contextmanager
def chatting(folder: Path) -> Iterator[None]:
    """Keep background services from ending while the block runs and this process lives."""
    if sys.platform != "win32":
        with _open_lock_file_of_open_chats(folder) as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            yield
    else:
        yield


def is_chatting(folder: Path) -> bool:
    """Return whether a process of this user is in a block of :func:`chatting`."""
    if sys.platform != "win32":
        try:
            with _open_lock_file_of_open_chats(folder) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
    return False


def _open_lock_file_of_open_chats(folder: Path) -> BinaryIO:
    return os.fdopen(os.open(folder / _CHATS, os.O_WRONLY | os.O_CREAT, 0o600), "wb")


def own_folder(folder: Path) -> None:
    """Make a folder that only this user can read; raise :class:`OSError` if it is another's."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_owned_by_user(folder):
        raise PermissionError(f"{folder} is not a folder of this user")
    if folder.stat().st_mode & 0o077:
        folder.chmod(0o700)


def _is_owned_by_user(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _is_listening_else_remove(path: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_SECONDS_TO_ASK)
            connection.connect(str(path))
    except (ConnectionRefusedError, FileNotFoundError):
        for left in path.parent.glob(f"{path.stem}.*"):  # its own, and those of its workers
            left.unlink(missing_ok=True)
        return False
    except OSError:
        return False
    return True


class RunningModel(Struct, frozen=True):
    id: str
    ref: str | None
    engine: str
    state: str
    """One of ``EngineState``."""
    context: int | None
    """Tokens of prompt and output of one request in force; ``None`` until it is loaded."""
    slots: int
    busy: int
    memory_bytes: int | None
    """The most that it may take, an estimate; ``None`` where nothing is loaded."""
    pid: int | None = None
    """Id of its process, if the service has started it."""
    cache_tokens: int | None = None
    """Tokens that all requests together may have, where they share a cache that bounds them."""
    unload_seconds: float | None = None
    """Time after which it is unloaded unless a request comes."""
    members: tuple[RunningMember, ...] = ()
    """Members of a pool; empty for any other engine."""


class RunningMember(Struct, frozen=True):
    address: str
    state: str
    slots: int
    busy: int
    memory_bytes: int | None = None
    """The most that it may take, where it is a process that the service has started."""
    pid: int | None = None
    """Id of that process."""


class ServiceFacts(Struct, frozen=True):
    pid: int
    file: str | None
    """The configuration file, if there is one."""
    address: str
    models: tuple[RunningModel, ...] = ()
    serves_cache: bool = False
    """Whether its models are all those of the cache."""
    background: bool = False
    """Whether `causerie run` has started it; it ends by itself."""
    version: str = ""
    """Of the program."""


def running_models(
    models: Sequence[ModelSettings], statuses: Sequence[EngineStatus]
) -> tuple[RunningModel, ...]:
    known = {model.id: model for model in models}
    return tuple(
        alike(
            RunningModel,
            status,
            id=status.model,
            ref=known[status.model].ref,
            engine=known[status.model].engine,
            state=status.state.value,
            members=tuple(
                alike(
                    RunningMember,
                    each,
                    address=each.model,
                    state=each.state.value,
                    memory_bytes=None if each.pid is None else each.memory_bytes,
                )
                for each in status.members
            ),
        )
        for status in statuses
        if status.model in known
    )


# Worker processes: their place below a supervisor, and what they report to it.


class WorkerPlace(Struct, frozen=True):
    number: int
    """From 1."""
    count: int
    restarts: int
    """Workers of the service that have been replaced so far."""
    channel: int
    """Descriptor of the socket pair's end."""
    sockets: Sequence[int]
    """Descriptors of the service's socket, and of its metrics' if they have their own address."""
    supervisor: str
    """Control socket of the supervisor."""

    def share(self, most: int | None) -> int | None:
        """Return this worker's share of a number that all workers may reach together."""
        if most is None:
            return None
        share, rest = divmod(most, self.count)
        return share + (self.number <= rest)


class WorkerReport(Struct, frozen=True, omit_defaults=True):
    """One line of a worker to its supervisor; a report with no field set is a heartbeat."""

    first_link: str | None = None
    ready: bool = False


def own_place() -> WorkerPlace | None:
    text = variables().get(WORKER)
    return None if text is None else msgspec.json.decode(text, type=WorkerPlace)


def worker_socket(supervisor: Path, number: int) -> Path:
    """Return the path of a worker's control socket, in a name no longer than its supervisor's."""
    return supervisor.with_suffix(f".w{number}")


async def metrics_of_all(place: WorkerPlace) -> bytes:
    wanted = partial(asked, Path(place.supervisor), "metrics", str, _METRICS_SECONDS)
    try:
        return (await asyncio.to_thread(wanted)).encode()
    except ControlFailed as failure:
        words = "The supervisor of the worker processes does not answer."
        raise Overloaded(words) from failure
