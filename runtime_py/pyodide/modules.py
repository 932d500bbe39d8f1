"""Imports the JavaScript package that travels in the wheel, in a page that serves nothing else.

A wheel's files lie in Pyodide's own file system, which no ``import`` can reach. So every
module becomes a blob: dependencies first, and in its text each relative import, each
``new URL("...", import.meta.url)`` and each bare import becomes the blob of what it names.
Pages whose policy forbids blobs serve the package themselves and pass ``hands=<URL>``.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping

from runtime_py.errors import ArtifactCorrupt

_STATIC = re.compile(
    r"""^(?P<head>(?:import|export)\b(?:[^;"']*?\bfrom)?\s*)(?P<quote>["'])(?P<name>[^"']+)(?P=quote)""",
    re.MULTILINE,
)
_ASSET = re.compile(r"""new URL\(\s*(["'])(?P<name>[^"']+)\1\s*,\s*import\.meta\.url\s*,?\s*\)""")

_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm"}


class ModuleGraph:
    """The package's files as a graph of blobs, made on demand and each once.

    Args:
        files: path in the package -> how to read the file.
        bare: bare specifier -> path in the package.
        make_url: makes a URL of bytes and a content type; the page's ``createObjectURL``.
    """

    def __init__(
        self,
        files: Mapping[str, Callable[[], bytes]],
        bare: Mapping[str, str],
        make_url: Callable[[bytes, str], str],
    ) -> None:
        self._files = files
        self._bare = bare
        self._make_url = make_url
        self._urls: dict[str, str] = {}
        self._open: list[str] = []

    def url(self, path: str) -> str:
        """URL of the file at ``path``, all that it imports included.

        Raises:
            ArtifactCorrupt: a file is not in the package, or imports itself in a circle.
        """
        made = self._urls.get(path)
        if made is not None:
            return made
        if path in self._open:
            circle = " -> ".join([*self._open[self._open.index(path) :], path])
            raise ArtifactCorrupt(f"the JavaScript package imports in a circle: {circle}")
        read = self._files.get(path)
        if read is None:
            raise ArtifactCorrupt(
                f"the wheel has no file {path!r} of the JavaScript package; build it with "
                "`make wheel`, or pass hands=<URL of the package>"
            )
        content = read()
        suffix = posixpath.splitext(path)[1]
        if suffix in (".js", ".mjs"):
            self._open.append(path)
            content = self._linked(content.decode(), posixpath.dirname(path)).encode()
            self._open.pop()
        self._urls[path] = url = self._make_url(
            content, _TYPES.get(suffix, "application/octet-stream")
        )
        return url

    def _linked(self, text: str, folder: str) -> str:
        def static(match: re.Match[str]) -> str:
            return f'{match["head"]}"{self._named(match["name"], folder)}"'

        def asset(match: re.Match[str]) -> str:
            return f'new URL("{self._named(match["name"], folder)}")'

        return _ASSET.sub(asset, _STATIC.sub(static, text))

    def _named(self, name: str, folder: str) -> str:
        if name.startswith("."):
            return self.url(posixpath.normpath(posixpath.join(folder, name)))
        if name in self._bare:
            return self.url(self._bare[name])
        return name
