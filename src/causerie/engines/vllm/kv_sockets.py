"""Place at which a vLLM started here publishes its KV events: sockets of this user's own."""

from __future__ import annotations

import json

from causerie.engines.ipc_socket import IpcSocket
from causerie.engines.pool.kv_subscriber import KvEndpoint

EVENTS_OPTION = "--kv-events-config"


class KvSockets:
    """Of one replica, through all of its restarts; ``close`` takes them away.

    They are Unix sockets because events contain the tokens of prompts, and a port is open to every
    user of the machine.
    """

    def __init__(self) -> None:
        self._events, self._replay = IpcSocket(), IpcSocket()

    @property
    def endpoint(self) -> KvEndpoint | None:
        """Return where events come; ``None`` where there are no such sockets."""
        events, replay = self._events.path, self._replay.path
        if events is None or replay is None:
            return None
        return KvEndpoint(f"ipc://{events}", f"ipc://{replay}")

    def close(self) -> None:
        """Remove them. May be called again."""
        self._events.close()
        self._replay.close()


def events_arguments(endpoint: KvEndpoint) -> tuple[str, str]:
    """Return what has a vLLM publish there."""
    told = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": endpoint.events,
        "replay_endpoint": endpoint.replay,
    }
    return EVENTS_OPTION, json.dumps(told)
