"""Build hook: a wheel carries the compiled wasm modules, and for Python in a page the
JavaScript package with the two libraries it is built on.

They run on every platform, so the wheel stays ``py3-none-any``. An editable install is
left alone: ``toolchain build`` writes the modules into the checkout itself.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_LIBRARIES = {
    "tokenizers": "dist/tokenizers.min.mjs",
    "jinja": "dist/index.js",
}


class WasmBuildHook(BuildHookInterface[Any]):
    """Compiles the modules into a scratch folder and adds them to the wheel, with the
    JavaScript package."""

    PLUGIN_NAME = "custom"
    _scratch: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before the wheel is written; ``version`` is "standard" or "editable"."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        try:
            from toolchain.build import build
        finally:
            sys.path.remove(self.root)
        self._scratch = tempfile.TemporaryDirectory()
        for report in build(Path(self._scratch.name)):
            self.app.display_info(f"{report.path.name}: {report.bytes} bytes")
            build_data["force_include"][str(report.path)] = f"runtime_py/_wasm/{report.path.name}"
        self._include_javascript(build_data["force_include"])

    def _include_javascript(self, include: dict[str, str]) -> None:
        workers = Path(self.root) / "workers"
        libraries = workers / "node_modules" / "@huggingface"
        if not libraries.is_dir():
            self.app.display_warning(
                "workers/node_modules is missing, so the wheel will not run in a page (Pyodide); "
                "run `npm ci` in workers/ first, or use `make wheel`"
            )
            return
        include[str(workers / "src")] = "runtime_py/_js/src"
        for name, file in _LIBRARIES.items():
            package = libraries / name
            include[str(package / file)] = f"runtime_py/_js/vendor/{name}.mjs"
            include[str(package / "LICENSE")] = f"runtime_py/_js/vendor/{name}.LICENSE"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._scratch is not None:
            self._scratch.cleanup()
