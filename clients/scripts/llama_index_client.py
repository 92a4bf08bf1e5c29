"""llama-index, for servers like OpenAI's."""

import sys

from llama_index.core.llms import ChatMessage
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike

where = {"api_base": f"{sys.argv[1]}/v1", "api_key": "none", "max_retries": 0}
model = OpenAILike(model="chat", is_chat_model=True, max_tokens=12, **where)
messages = [ChatMessage(role="user", content="one two")]
whole = model.chat(messages).message.content
assert whole
assert "".join(part.delta or "" for part in model.stream_chat(messages)) == whole
assert OpenAILike(model="chat", is_chat_model=False, max_tokens=8, **where).complete("one two").text
vectors = OpenAILikeEmbedding(model_name="vectors", **where).get_text_embedding_batch(["one", "two"])
assert len(vectors) == 2
