"""The first request with a key, in the ways that people make it."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Snippet:
    """A piece of code to copy."""

    id: str
    title: str
    text: str


def snippets(base: str, key: str, model: str) -> tuple[Snippet, ...]:
    """For the door at ``base``."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hello!"}]}
    curl = (
        f"curl {shlex.quote(base + '/chat/completions')} \\\n"
        f"  -H 'Authorization: Bearer {key}' \\\n"
        "  -H 'Content-Type: application/json' \\\n"
        f"  -d {shlex.quote(json.dumps(body))}"
    )
    python = (
        "from openai import OpenAI\n\n"
        f"client = OpenAI(base_url={json.dumps(base)}, api_key={json.dumps(key)})\n"
        "completion = client.chat.completions.create(\n"
        f"    model={json.dumps(model)},\n"
        '    messages=[{"role": "user", "content": "Hello!"}],\n'
        ")\n"
        "print(completion.choices[0].message.content)"
    )
    javascript = (
        'import OpenAI from "openai";\n\n'
        f"const client = new OpenAI({{\n  baseURL: {json.dumps(base)},\n"
        f"  apiKey: {json.dumps(key)},\n}});\n"
        "const completion = await client.chat.completions.create({\n"
        f"  model: {json.dumps(model)},\n"
        '  messages: [{ role: "user", content: "Hello!" }],\n'
        "});\n"
        "console.log(completion.choices[0].message.content);"
    )
    variables = f"export OPENAI_BASE_URL={shlex.quote(base)}\nexport OPENAI_API_KEY={key}"
    return (
        Snippet("curl", "curl", curl),
        Snippet("python", "Python", python),
        Snippet("javascript", "JavaScript", javascript),
        Snippet("environment", "Environment", variables),
    )


def router_snippets(base: str, key: str, model: str) -> tuple[Snippet, ...]:
    """For the router's door at ``base``; its own clients work with it too."""
    sdk = (
        'import { OpenRouter } from "@openrouter/sdk";\n\n'
        f"const client = new OpenRouter({{\n  serverURL: {json.dumps(base)},\n"
        f"  apiKey: {json.dumps(key)},\n}});\n"
        "const completion = await client.chat.send({\n"
        f"  chatRequest: {{\n    model: {json.dumps(model)},\n"
        '    messages: [{ role: "user", content: "Hello!" }],\n'
        "  },\n});\n"
        "console.log(completion.choices[0].message.content);"
    )
    usual = [one for one in snippets(base, key, model) if one.id != "environment"]
    return (*usual, Snippet("sdk", "@openrouter/sdk", sdk))


def management_snippets(base: str, key: str, project: str) -> tuple[Snippet, ...]:
    address = f"{base}/api/projects/{project}/keys"
    curl = f"curl {shlex.quote(address)} \\\n  -H 'Authorization: Bearer {key}'"
    return (Snippet("curl", "curl", curl),)
