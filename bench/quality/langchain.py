"""LangChain's standard tests of chat models, run in a Python environment of their own.

They ask a server as LangChain's client for OpenAI does: plain, streamed, with tools, with forced
calls, and for answers in a JSON Schema.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("langchain-openai==1.7.4", "langchain-tests==1.1.9")
MODEL = "quality"
SECONDS = 120
# One event loop, as the client keeps its connections from one test to the next.
ASYNC = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_test_loop_scope=session")
TESTS = f'''
import os
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

class TestServer(ChatModelIntegrationTests):
    @property
    def chat_model_class(self):
        return ChatOpenAI

    @property
    def chat_model_params(self):
        return {{
            "model": "{MODEL}", "base_url": os.environ["ROOT"] + "/v1", "api_key": "none",
            "temperature": 0, "timeout": {SECONDS}, "max_retries": 0, "stream_usage": True,
        }}
'''


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of the tests at one server; those that do not apply to it are left out."""

    passed: int
    lost: tuple[str, ...]


def environment(folder: Path) -> Path:
    """Return the Python of an environment with the packages; it is made if it is not there."""
    python = folder / "langchain" / "bin" / "python"
    if not python.exists():
        uv = [sys.executable, "-m", "uv"]
        subprocess.run([*uv, "venv", "--quiet", str(python.parents[1])], check=True)
        install = [*uv, "pip", "install", "--quiet", "--python", str(python), *PACKAGES]
        subprocess.run(install, check=True)
    return python


def run(python: Path, root: str) -> Outcome:
    """Run all tests against the server at ``root``."""
    with tempfile.TemporaryDirectory() as folder:
        file, report = Path(folder) / "test_server.py", Path(folder) / "report.xml"
        file.write_text(TESTS)
        options = ["-q", f"--junit-xml={report}", *ASYNC]
        command = [str(python), "-m", "pytest", *options, str(file)]
        subprocess.run(
            command, cwd=folder, env={**os.environ, "ROOT": root}, stdout=subprocess.DEVNULL
        )
        cases = list(ElementTree.parse(report).iter("testcase"))
    asked = [case for case in cases if case.find("skipped") is None]
    lost = [
        case.attrib["name"]
        for case in asked
        if case.find("failure") is not None or case.find("error") is not None
    ]
    return Outcome(len(asked) - len(lost), tuple(lost))
