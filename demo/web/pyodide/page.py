"""What the page gives to the programs that it runs: ``from page import load``."""

import asyncio
import platform
import traceback
from collections.abc import Coroutine
from typing import Any

import js
import volery_page
from pyodide.code import eval_code_async
from pyodide.ffi import create_proxy, to_js

import runtime_py

VERSION = platform.python_version()

_models: list[runtime_py.Model] = []
_proxies: list[Any] = []
_running: asyncio.Future[None] | None = None
_closing: asyncio.Future[None] | None = None


async def load(source: str, **options: Any) -> runtime_py.Model:
    """`runtime_py.load` with the page's threads; the dashboard shows the model's scheduler.

    The model is closed when the next program starts.
    """
    model = await runtime_py.load(source, **{"threads": volery_page.threads, **options})
    _models.append(model)

    def stats() -> Any:
        now = model.stats()
        return _object(
            queuedSeqs=now.queued_seqs,
            runningSteps=now.running_steps,
            runningSeqs=now.running_seqs,
            steps=now.steps,
            seqs=now.seqs,
            tokens=now.tokens,
            deviceMs=now.device_ms,
            batchSizes=dict(now.batch_sizes),
        )

    _proxies.append(create_proxy(stats))
    volery_page.watch(_object(stats=_proxies[-1], info={"threads": model.info.threads}))
    return model


def run(code: str) -> Coroutine[Any, Any, str]:
    """Begin a program, which `stop` ends from now on; what went wrong as text, or nothing."""
    global _running
    _running = asyncio.ensure_future(_program(code))
    return _outcome(_running)


async def _program(code: str) -> None:
    global _closing
    _closing = asyncio.ensure_future(_close_models())
    await asyncio.shield(_closing)  # whoever stops the program does not stop this half-way
    await eval_code_async(code, {"__name__": "__main__"})


async def _outcome(program: asyncio.Future[None]) -> str:
    global _running
    try:
        await program
    except asyncio.CancelledError:
        return "Stopped."
    except BaseException as error:
        return _own_traceback(error)
    finally:
        _running = None
    return ""


def stop() -> None:
    """End the program that runs."""
    if _running is not None:
        _running.cancel()


async def _close_models() -> None:
    while _models:
        await _models.pop().close()
    # The dashboard keeps the last model's numbers until another one is watched.
    for proxy in _proxies[:-1]:
        proxy.destroy()
    del _proxies[:-1]


def _own_traceback(error: BaseException) -> str:
    """The frames of the program, without the page's below and the library's above."""
    found = traceback.TracebackException.from_exception(error, compact=True)
    found.stack = traceback.StackSummary.from_list(
        [frame for frame in found.stack if frame.filename == "<exec>"]
    )
    return "".join(found.format(chain=False)).rstrip()


def _object(**fields: Any) -> Any:
    return to_js(fields, dict_converter=js.Object.fromEntries)
