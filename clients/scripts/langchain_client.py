"""langchain-openai: chats, streams, structured output, tools, embeddings."""

import sys
from typing import Literal

from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel

where = {"base_url": f"{sys.argv[1]}/v1", "api_key": "none", "max_retries": 0}


class Colour(BaseModel):
    """A colour."""

    name: Literal["red", "green"]


model = ChatOpenAI(model="chat", max_tokens=12, **where)
whole = model.invoke([("system", "Do"), ("user", "one two")])
assert whole.content
assert whole.usage_metadata["output_tokens"] == 12
assert "".join(part.content for part in model.stream([("system", "Do"), ("user", "one two")])) == whole.content

roomy = ChatOpenAI(model="chat", max_tokens=100, **where)
for method in ("json_schema", "function_calling"):
    assert isinstance(roomy.with_structured_output(Colour, method=method).invoke("one two"), Colour), method
calls = roomy.bind_tools([Colour], tool_choice="any").invoke("one two").tool_calls
assert calls[0]["name"] == "Colour"
assert OpenAI(model="chat", max_tokens=8, **where).invoke("one two")

texts = ["one", "two"]
vectors = OpenAIEmbeddings(model="vectors", check_embedding_ctx_length=False, **where).embed_documents(texts)
assert len(vectors) == 2
assert abs(sum(x * x for x in vectors[0]) - 1) < 1e-4
