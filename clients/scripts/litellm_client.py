"""litellm: as a server like OpenAI's."""

import sys

import litellm

where = {"api_base": f"{sys.argv[1]}/v1", "api_key": "none", "num_retries": 0}
messages = [{"role": "user", "content": "one two"}]
whole = litellm.completion(model="openai/chat", messages=messages, max_tokens=12, **where)
assert whole.usage.completion_tokens == 12
stream = litellm.completion(model="openai/chat", messages=messages, max_tokens=12, stream=True, **where)
assert "".join(part.choices[0].delta.content or "" for part in stream) == whole.choices[0].message.content
found = litellm.embedding(model="openai/vectors", input=["one", "two"], encoding_format="float", **where)
assert len(found.data) == 2
try:
    litellm.completion(model="openai/none", messages=messages, **where)
except litellm.NotFoundError:
    pass
else:
    raise AssertionError("a model that is not there was found")
