"""Examples that fields for tools and schemas show while they are empty."""

from __future__ import annotations

TOOLS = """[{
  "type": "function",
  "function": {
    "name": "weather",
    "description": "The weather in a city",
    "parameters": {
      "type": "object",
      "properties": {"city": {"type": "string"}},
      "required": ["city"]
    }
  }
}]"""
SCHEMA = """{
  "type": "object",
  "properties": {
    "answer": {"type": "string"},
    "sure": {"type": "boolean"}
  },
  "required": ["answer", "sure"],
  "additionalProperties": false
}"""
