"""OpenVINO GenAI as an engine: a child process, its client, and the text engine of both."""

from __future__ import annotations

import sys

# OpenVINO would tell its makers of each import, from a process that outlives the engine's. Without
# this package it does not.
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
