"""Ask the model on this machine one question, and print the answer as it is written."""

import sys

from openai import OpenAI

client = OpenAI()  # OPENAI_BASE_URL and OPENAI_API_KEY say where and who
question = " ".join(sys.argv[1:]) or "Write a haiku about rivers."
stream = client.chat.completions.create(
    model="smollm2-135m",
    messages=[{"role": "user", "content": question}],
    stream=True,
)
for chunk in stream:
    print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
