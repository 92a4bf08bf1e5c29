"""instructor: a tool that must be called, and a schema."""

import sys
from typing import Literal

import instructor
import openai
from pydantic import BaseModel


class Colour(BaseModel):
    name: Literal["red", "green"]


plain = openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none", max_retries=0)
for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
    found = instructor.from_openai(plain, mode=mode).chat.completions.create(
        model="chat",
        response_model=Colour,
        max_retries=0,
        max_tokens=100,
        messages=[{"role": "user", "content": "one"}],
    )
    assert isinstance(found, Colour), mode
