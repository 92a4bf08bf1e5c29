"""openai for Python: chats, streams, formats, tools, completions, embeddings, errors."""

import json
import sys
from typing import Literal

import openai
from pydantic import BaseModel, Field

client = openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none", max_retries=0)
messages = [{"role": "user", "content": "one two"}]


class Colour(BaseModel):
    name: Literal["red", "green"]
    parts: list[Literal[1, 2]] = Field(max_length=2)


assert {"chat", "vectors", "en-de"} == {model.id for model in client.models.list()}
assert client.models.retrieve("chat").id == "chat"

whole = client.chat.completions.create(model="chat", messages=messages, max_tokens=12)
assert whole.choices[0].message.content
assert whole.usage.completion_tokens == 12
stream = client.chat.completions.create(
    model="chat", messages=messages, max_tokens=12, stream=True, stream_options={"include_usage": True}
)
text, used = "", None
for chunk in stream:
    text += chunk.choices[0].delta.content or "" if chunk.choices else ""
    used = chunk.usage or used
assert text == whole.choices[0].message.content
assert (used.prompt_tokens, used.completion_tokens) == (whole.usage.prompt_tokens, 12)

with client.chat.completions.stream(model="chat", messages=messages, max_tokens=12) as events:
    assert "".join(event.delta for event in events if event.type == "content.delta") == text

told = client.chat.completions.create(model="chat", messages=messages, max_tokens=4, logprobs=True, top_logprobs=3, n=2)
assert len(told.choices[0].logprobs.content[0].top_logprobs) == 3

parsed = client.chat.completions.parse(model="chat", messages=messages, response_format=Colour, max_tokens=100)
assert isinstance(parsed.choices[0].message.parsed, Colour)

tool = openai.pydantic_function_tool(Colour, name="paint")
called = client.chat.completions.create(
    model="chat", messages=messages, tools=[tool], tool_choice="required", max_tokens=100
)
call = called.choices[0].message.tool_calls[0]
assert call.function.name == "paint"
Colour.model_validate(json.loads(call.function.arguments))
back = [*messages, called.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "done"}]
assert client.chat.completions.create(model="chat", messages=back, max_tokens=4).choices[0].message.content

written = client.completions.create(model="chat", prompt="one two", max_tokens=8, logprobs=2)
pieces = client.completions.create(model="chat", prompt="one two", max_tokens=8, stream=True)
assert "".join(piece.choices[0].text for piece in pieces) == written.choices[0].text

coded = client.embeddings.create(model="vectors", input=["one", "two"])  # as base64, which the client decodes
plain = client.embeddings.create(model="vectors", input=["one", "two"], encoding_format="float")
for a, b in zip(coded.data, plain.data, strict=True):
    assert max(abs(x - y) for x, y in zip(a.embedding, b.embedding, strict=True)) < 1e-6

for wrong, kind in (
    ({"model": "none", "messages": messages}, openai.NotFoundError),
    ({"model": "chat", "messages": messages, "extra_body": {"nonsense": 1}}, openai.BadRequestError),
    ({"model": "chat", "messages": []}, openai.BadRequestError),
):
    try:
        client.chat.completions.create(**wrong)
    except kind as error:
        assert error.body["message"]  # noqa: PT017
    else:
        raise AssertionError(f"{wrong} was taken")

answer = client.responses.create(model="chat", input="one two", max_output_tokens=12)
assert answer.output_text == text
deltas = [
    event.delta
    for event in client.responses.create(model="chat", input="one two", max_output_tokens=12, stream=True)
    if event.type == "response.output_text.delta"
]
assert "".join(deltas) == text
