"""ollama for Python."""

import json
import sys

import ollama

client = ollama.Client(host=sys.argv[1])
messages = [{"role": "user", "content": "one two"}]
assert [model.model for model in client.list().models] == ["chat", "vectors", "en-de"]
whole = client.chat(model="chat", messages=messages, options={"num_predict": 12})
assert whole.eval_count == 12
stream = client.chat(model="chat", messages=messages, options={"num_predict": 12}, stream=True)
assert "".join(part.message.content for part in stream) == whole.message.content
assert client.generate(model="chat", prompt="one two", options={"num_predict": 4}).response
schema = {
    "type": "object",
    "properties": {"sure": {"type": "boolean"}},
    "required": ["sure"],
    "additionalProperties": False,
}
shaped = client.chat(model="chat", messages=messages, format=schema, options={"num_predict": 40})
assert set(json.loads(shaped.message.content)) == {"sure"}


def clock(zone: str) -> str:
    """The time.

    Args:
        zone: where
    """
    return zone


assert client.chat(model="chat", messages=messages, tools=[clock], options={"num_predict": 4}).message is not None
assert len(client.embed(model="vectors", input=["one", "two"]).embeddings) == 2
assert client.embeddings(model="vectors", prompt="one").embedding
assert "completion" in client.show("chat").capabilities
try:
    client.chat(model="none", messages=messages)
except ollama.ResponseError as error:
    assert error.status_code == 404  # noqa: PT017
else:
    raise AssertionError("a model that is not there was found")
