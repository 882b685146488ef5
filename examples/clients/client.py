"""Stream an answer, let the model call a function, and read an answer as an object."""

from typing import Any

from openai import OpenAI
from openai.types.chat import ChatCompletionToolParam
from pydantic import BaseModel, Field

client = OpenAI()  # OPENAI_BASE_URL and OPENAI_API_KEY say where and who
MODEL = client.models.list().data[0].id
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city now.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Paris", "Oslo"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


class Cat(BaseModel):
    """What the model is to find in a sentence."""

    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=40)


def stream() -> None:
    """Print an answer while it is written, and then what it took."""
    chunks = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Say hello."}],
        max_tokens=40,
        stream=True,
        stream_options={"include_usage": True},
    )
    print("stream: ", end="")
    for chunk in chunks:
        for choice in chunk.choices:
            print(choice.delta.content or "", end="", flush=True)
        if chunk.usage:
            print(f"\n{chunk.usage.completion_tokens} tokens")


def tools() -> None:
    """Run the function that the model calls, and let it answer with the result."""
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Oslo?"}]
    first = client.chat.completions.create(
        model=MODEL, messages=messages, tools=[WEATHER], tool_choice="required", max_tokens=100
    )
    message = first.choices[0].message
    messages.append(message)
    for call in message.tool_calls or []:
        if call.type == "function":
            print(f"call: {call.function.name} {call.function.arguments}")
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "sunny, 21 °C"})
    second = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=40)
    print(f"answer: {second.choices[0].message.content}")


def structured() -> None:
    """Read an answer that has the form of a class."""
    answer = client.chat.completions.parse(
        model=MODEL,
        messages=[{"role": "user", "content": "A cat called Tom, three years old."}],
        response_format=Cat,
        max_tokens=100,
    )
    print(f"object: {answer.choices[0].message.parsed!r}")


stream()
tools()
structured()
