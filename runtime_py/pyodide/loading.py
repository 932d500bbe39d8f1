"""`runtime_py.load` in a page: the hands fetch, check and hold the model."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from runtime_py.artifact.manifest import Manifest
from runtime_py.errors import InvalidInput
from runtime_py.executors.base import ExecutorLimits, ModelExecutor
from runtime_py.generation.loading import check_tasks
from runtime_py.program import Program, validate
from runtime_py.pyodide.errors import raised_in_page
from runtime_py.pyodide.executor import PyodideExecutor
from runtime_py.pyodide.hands import import_hands
from runtime_py.pyodide.words import PageTemplate, PageTextTokenizer, PageTokenizer

if TYPE_CHECKING:
    from runtime_py.backends import BackendOptions
    from runtime_py.download import Progress
    from runtime_py.generation.tokenizer import TextTokenizer
    from runtime_py.loading import Prepared
    from runtime_py.tokenization import Tokenizer


async def prepare_in_page(
    source: str,
    options: BackendOptions,
    tokenizer: Tokenizer | TextTokenizer | None,
    verify: bool,
    progress: Progress | None,
) -> Prepared:
    """The model at ``source``, held by the hands, which have checked its goldens.

    Args:
        source: address of the artifact's folder, absolute or relative to the page.
        verify: the hands always verify what they use.

    Raises:
        ArtifactError: the artifact cannot be used.
        InvalidInput: an option that a page cannot follow.
        OutOfMemory: the model does not fit.
    """
    from pyodide.ffi import create_proxy

    from runtime_py.loading import Prepared

    _check(options)
    hands = await import_hands(os.environ.get("VOLERY_HANDS"))
    link = _Link()
    callback = create_proxy(link.completed)
    on_progress = create_proxy(progress) if progress is not None else None
    try:
        with raised_in_page():
            opened = await hands.open(source, _hands_options(options), callback, on_progress)
    except BaseException:
        callback.destroy()
        raise
    finally:
        if on_progress is not None:
            on_progress.destroy()
    info = json.loads(opened.bridge.info())
    manifest = Manifest.parse(json.dumps(info["manifest"]).encode())
    program = validate(Program.decode(opened.program.to_bytes()))
    link.executor = backend = _executor(program, info)
    backend.attach(opened.bridge, callback)
    try:
        check_tasks(manifest, program)
        words = tokenizer or _words(program, opened.words, manifest)
    except BaseException:
        backend.close()
        raise
    return Prepared(manifest, program, backend, words, lambda: PageTemplate(opened.words))


class _Link:
    """The bridge calls back into an executor that is made after it."""

    executor: PyodideExecutor | None = None

    def completed(self, *outcome: Any) -> None:
        assert self.executor is not None
        self.executor.completed(*outcome)


def _check(options: BackendOptions) -> None:
    if isinstance(options.executor, ModelExecutor) or options.executor != "auto":
        raise InvalidInput(
            f"executor is {options.executor!r}, expected 'auto': a page has its own backend"
        )
    if options.torch_device is not None:
        raise InvalidInput("torch_device is set, but there is no torch in a page; leave it out")
    if options.kv_bytes is not None:
        raise InvalidInput("kv_bytes is set, expected kv_blocks in a page")


def _hands_options(options: BackendOptions) -> str:
    found = {
        "threads": options.threads,
        "maxSeqs": options.max_seqs,
        "kvBlocks": options.kv_blocks,
        "kvFormat": options.kv_format,
    }
    return json.dumps({name: value for name, value in found.items() if value is not None})


def _executor(program: Program, info: dict[str, Any]) -> PyodideExecutor:
    limits = info["limits"]
    return PyodideExecutor(
        program,
        ExecutorLimits(
            limits["maxTokens"],
            limits["maxSeqs"],
            info["threads"],
            info["concurrency"],
            limits["kvBlocks"],
            limits["maxWanted"],
        ),
        program.output.width,
        info["variant"],
    )


def _words(program: Program, words: Any, manifest: Manifest) -> Tokenizer | TextTokenizer:
    if program.is_decoder:
        return PageTextTokenizer(words)
    return PageTokenizer(words, manifest.limits.max_tokens)
