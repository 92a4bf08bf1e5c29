"""sentence-transformers behind the simplest server, for serve_embeddings.py: python sentence_server.py FOLDER PORT

Needs sentence-transformers, starlette and uvicorn, in an environment of its own.
"""

import sys
from typing import Any

import uvicorn
from sentence_transformers import SentenceTransformer
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

model: Any = SentenceTransformer(sys.argv[1], device="cpu")


async def embed(request: Request) -> Response:
    texts = (await request.json())["inputs"]
    return JSONResponse((await run_in_threadpool(model.encode, texts, batch_size=32)).tolist())


async def health(request: Request) -> Response:
    return Response()


app = Starlette(routes=[Route("/embed", embed, methods=["POST"]), Route("/health", health)])
uvicorn.run(app, port=int(sys.argv[2]), log_level="error")
