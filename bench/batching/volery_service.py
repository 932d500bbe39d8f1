"""The same service with our scheduler, behind the same web server as BentoML's.

VOLERY_ARTIFACT=... VOLERY_SLO_MS=... uvicorn bench.batching.volery_service:app
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import runtime_py as rt

SLO_MS = int(os.environ.get("VOLERY_SLO_MS", "250"))
_models: list[rt.Model] = []


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Load the model before the server says that it is ready."""
    async with await rt.load(os.environ["VOLERY_ARTIFACT"], threads=1) as model:
        _models.append(model)
        yield
        _models.clear()


async def embed(request: Request) -> JSONResponse:
    """One vector per text."""
    body = await request.json()
    try:
        vectors = await _models[0].embed(body["texts"], traffic="latency", deadline_ms=SLO_MS)
    except (rt.errors.DeadlineExceeded, rt.errors.Overloaded) as e:
        return JSONResponse({"error": str(e)}, status_code=503)
    return JSONResponse(vectors.tolist())


async def ready(request: Request) -> JSONResponse:
    """The model is loaded."""
    return JSONResponse({"ready": True})


app = Starlette(
    routes=[Route("/embed", embed, methods=["POST"]), Route("/readyz", ready)], lifespan=lifespan
)
