"""litellm: documents in the order in which they answer a query, as it asks several kinds of servers."""

import sys

import litellm

address, key = sys.argv[1:]
documents = ["The stock market fell.", "A puppy plays."]
for model, path in (
    ("hosted_vllm/sentences", ""),
    ("cohere/sentences", "/v2/rerank"),
    ("jina_ai/sentences", "/v1/rerank"),
):
    found = litellm.rerank(
        model=model, query="a dog", documents=documents, top_n=2, api_base=f"{address}{path}", api_key=key
    )
    assert [each["index"] for each in found.results] == [1, 0]
    assert found.results[0]["relevance_score"] > found.results[1]["relevance_score"]
