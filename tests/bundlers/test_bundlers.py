"""The package in applications: Vite, webpack, esbuild and plain modules, on a sub-path."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.bundlers.conftest import HERE
from tests.js.npm import WORKERS, NpmPackage
from tests.js.server import serving
from tests.js.tiny import sequences

SUB_PATH = "/some/deep/app/"
PAGES = {"plain": "plain.html", "vite": "vite.html", "webpack": None, "esbuild": None}
RUN = """async (args) => {
  while (!globalThis.run) await new Promise((resolve) => setTimeout(resolve));
  return globalThis.run(...args);
}"""

# Bars of the package, in bytes: the core is our code and one wasm build, gzipped.
MAX_CORE = 120_000
MAX_TARBALL = 600_000


@pytest.mark.parametrize("bundler", PAGES)
def test_M11_bundled(
    browser: Any, bundle: Callable[[str], Path], tiny_artifact: Path, bundler: str
) -> None:
    """The goldens pass with threads and without, and the page asks its own origin only."""
    site = bundle(bundler)
    page_name = PAGES[bundler] or "index.html"
    if PAGES[bundler] is None:
        shutil.copy(HERE / "app" / "bundled.html", site / page_name)
    results = []
    for isolate in (True, False):
        with serving({SUB_PATH: site}, isolate=isolate) as server:
            context = browser.new_context()
            try:
                page = context.new_page()
                asked: list[str] = []
                failed: list[str] = []
                page.on("request", lambda r, to=asked: to.append(r.url))
                page.on(
                    "response",
                    lambda r, to=failed: to.append(f"{r.status} {r.url}") if r.status >= 400 else 0,
                )
                page.goto(f"{server.origin}{SUB_PATH}{page_name}")
                args = [server.share(tiny_artifact), sequences(), 2]
                results.append(page.evaluate(RUN, args))
            finally:
                context.close()
            assert failed == []
            foreign = [u for u in asked if not u.startswith((server.origin, "data:", "blob:"))]
            assert foreign == []
    threads, copies = results
    assert (threads["pool"], threads["threads"], threads["warnings"]) == ("threads", 2, [])
    assert copies["pool"] == "instances"
    for result in results:
        assert result["goldens"]["cases"] == len(sequences())
        assert result["variant"].startswith("relaxed")
        assert result["output"] == threads["output"]


POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; "
    "connect-src 'self'"
)
IN_BACKGROUND = """async ([kind, ...args]) => {
  let target;
  if (kind === "service worker") {
    await navigator.serviceWorker.register("./background.js", { type: "module" });
    target = (await navigator.serviceWorker.ready).active;
  } else {
    target = new Worker("./background.js", { type: "module" });
  }
  const { port1, port2 } = new MessageChannel();
  const answered = new Promise((resolve) => (port1.onmessage = (event) => resolve(event.data)));
  target.postMessage(args, [port2]);
  const { result, error } = await answered;
  if (error) throw new Error(error);
  return result;
}"""


@pytest.mark.parametrize("kind", ["service worker", "module worker"])
def test_M6_in_the_background(
    browser: Any, bundle: Callable[[str], Path], tiny_artifact: Path, kind: str
) -> None:
    """In workers of the application's own, under the policy that extensions have."""
    site = bundle("esbuild")
    shutil.copy(HERE / "app" / "bundled.html", site / "index.html")
    with serving({SUB_PATH: site}, isolate=True) as server:
        server.headers["Content-Security-Policy"] = POLICY
        context = browser.new_context()
        try:
            page = context.new_page()
            page.goto(f"{server.origin}{SUB_PATH}index.html")
            args = [kind, server.share(tiny_artifact), sequences(), 2]
            result = page.evaluate(IN_BACKGROUND, args)
        finally:
            context.close()
    # A service worker cannot start workers; a module worker can.
    pool = "inline" if kind == "service worker" else "threads"
    assert result["pool"] == pool
    assert len(result["warnings"]) == (pool == "inline")
    assert result["goldens"]["cases"] == len(sequences())


def test_core_size(bundle: Callable[[str], Path], npm_package: NpmPackage) -> None:
    """What a page downloads before the model, without the tokenizer libraries."""
    script = (bundle("core") / "core.js").read_bytes()
    wasm = (npm_package.root / "wasm" / "volery-relaxed-threads.wasm").read_bytes()
    sizes = {"script": len(gzip.compress(script, 9)), "wasm": len(gzip.compress(wasm, 9))}
    assert sum(sizes.values()) <= MAX_CORE, sizes


def test_tarball(npm_package: NpmPackage) -> None:
    """Small, and complete: every entry of the exports map is there, with its types."""
    assert npm_package.tarball_bytes <= MAX_TARBALL
    assert len(list((npm_package.root / "wasm").glob("*.wasm"))) == 4
    for entry in ("index", "index.node", "index.deno", "index.workerd", "pool/worker"):
        assert (npm_package.root / "src" / f"{entry}.js").is_file()
        assert (npm_package.root / "types" / f"{entry}.d.ts").is_file()


def test_types(npm_package: NpmPackage) -> None:
    """A strict TypeScript program compiles against the declarations; a wrong one does not."""
    folder = npm_package.node_modules.parent / "typed"
    shutil.copytree(HERE / "typed", folder)

    def compile_(file: str) -> subprocess.CompletedProcess[str]:
        tsc = WORKERS / "node_modules" / ".bin" / "tsc"
        options = ["--noEmit", "--strict", "--module", "nodenext", "--target", "es2022"]
        command = [str(tsc), *options, "--skipLibCheck", file]
        return subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
        )

    good = compile_("good.mts")
    assert good.returncode == 0, good.stdout
    bad = compile_("bad.mts")
    assert bad.stdout.count("error TS") == 3, bad.stdout
