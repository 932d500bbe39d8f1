"""The JavaScript package, imported into the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from runtime_py.errors import ArtifactMissing
from runtime_py.pyodide.modules import ModuleGraph

ENTRY = "src/python/open.js"
_BARE = {
    "@huggingface/tokenizers": "vendor/tokenizers.mjs",
    "@huggingface/jinja": "vendor/jinja.mjs",
}

_imported: dict[str | None, Any] = {}


async def import_hands(url: str | None) -> Any:
    """The module `workers/src/python/open.js`, imported once.

    Args:
        url: address of the package's folder, for pages whose policy forbids blobs; None =
            the copy in the wheel.

    Raises:
        ArtifactMissing: it cannot be imported.
    """
    if url not in _imported:
        from pyodide.code import run_js
        from pyodide.ffi import JsException

        entry = f"{url.rstrip('/')}/{ENTRY}" if url else _graph().url(ENTRY)
        try:
            _imported[url] = await run_js("(url) => import(url)")(entry)
        except JsException as e:
            raise ArtifactMissing(
                f"the JavaScript package cannot be imported from {url or 'the wheel'} ({e}); a "
                "page that forbids blobs serves the package and sets VOLERY_HANDS to its address"
            ) from None
    return _imported[url]


def _graph() -> ModuleGraph:
    root = files("runtime_py")
    found = dict(_walk(root / "_js", ""))
    for file in (root / "_wasm").iterdir():
        if file.name.endswith(".wasm"):
            found[f"wasm/{file.name}"] = file.read_bytes
    return ModuleGraph(found, _BARE, _blob_url)


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, Callable[[], bytes]]]:
    if not folder.is_dir():
        return
    for file in folder.iterdir():
        if file.is_dir():
            yield from _walk(file, f"{prefix}{file.name}/")
        else:
            yield prefix + file.name, partial(file.read_bytes)


def _blob_url(content: bytes, content_type: str) -> str:
    import js
    from pyodide.ffi import to_js

    options = to_js({"type": content_type}, dict_converter=js.Object.fromEntries)
    return str(js.URL.createObjectURL(js.Blob.new(to_js([to_js(content)]), options)))
