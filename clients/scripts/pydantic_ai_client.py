"""pydantic-ai: text, and an output that is a tool's arguments."""

import sys
from typing import Literal

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


class Colour(BaseModel):
    name: Literal["red", "green"]


model = OpenAIChatModel("chat", provider=OpenAIProvider(base_url=f"{sys.argv[1]}/v1", api_key="none"))
text = Agent(model, model_settings={"max_tokens": 12}).run_sync("one two")
assert text.output
found = Agent(model, output_type=Colour, model_settings={"max_tokens": 100}, retries=0).run_sync("one two")
assert isinstance(found.output, Colour)
