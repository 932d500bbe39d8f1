"""Serve the web demos on localhost, with the headers that let a page use threads.

python demo/serve_web.py [--port 8000]
"""

from __future__ import annotations

import argparse
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {
    "/web": ROOT / "demo" / "web",
    "/birds.txt": ROOT / "demo" / "birds.txt",
    "/artifacts": ROOT / "artifacts",
    "/package": ROOT / "workers",
    "/dist": ROOT / "dist",
    "/pyodide": ROOT / "demo" / "node_modules" / "pyodide",
}
TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm"}
HEADERS = {
    # Both together make the page cross-origin isolated: only then may threads share memory.
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
}


class Handler(SimpleHTTPRequestHandler):
    """Files of a few folders; nothing else of the checkout can be reached."""

    protocol_version = "HTTP/1.1"
    # Head and body are two writes: the second would wait 40 ms for the first's acknowledgement.
    disable_nagle_algorithm = True
    extensions_map = {**SimpleHTTPRequestHandler.extensions_map, **TYPES}  # noqa: RUF012

    def __init__(self, *args: Any, folders: Mapping[str, Path], cache: str) -> None:
        self.folders = folders
        self.cache = cache
        super().__init__(*args)

    def translate_path(self, path: str) -> str:
        asked = unquote(urlsplit(path).path)
        for prefix, folder in self.folders.items():
            below = asked.removeprefix(prefix)
            if below == asked or below[:1] not in ("", "/"):
                continue
            file = folder / below.strip("/")
            if ".." not in file.parts:
                # The base class wants the slash of folders kept.
                return f"{file}/" if asked.endswith("/") else str(file)
        return str(ROOT / "nothing")

    def do_GET(self) -> None:
        if self.path == "/":
            self.send_response(302)
            self.send_header("Location", "/web/")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        super().do_GET()

    def list_directory(self, path: Any) -> None:
        self.send_error(404)

    def copyfile(self, source: Any, outputfile: Any) -> None:
        try:
            shutil.copyfileobj(source, outputfile)
        except ConnectionError:
            self.close_connection = True  # the reader left the page

    def end_headers(self) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Cache-Control", self.cache)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def make_server(
    port: int, folders: Mapping[str, Path] | None = None, *, cache: str = "no-cache"
) -> ThreadingHTTPServer:
    """A server on 127.0.0.1.

    Args:
        port: 0 takes a free one.
        folders: path of a URL -> folder or file, besides or instead of those of `FOLDERS`.
        cache: the header Cache-Control; by default browsers ask whether a file has changed.
    """
    served = {**FOLDERS, **(folders or {})}
    longest_first = sorted(served, key=len, reverse=True)
    found = {path: served[path] for path in longest_first}
    return ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, folders=found, cache=cache))


@contextmanager
def serving(folders: Mapping[str, Path], *, cache: str = "no-cache") -> Iterator[str]:
    """Serve from a thread, on a free port; gives the origin. Arguments as of `make_server`."""
    server = make_server(0, folders, cache=cache)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://localhost:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve the web demos on localhost.")
    parser.add_argument("--port", type=int, default=8000)
    with make_server(parser.parse_args().port) as server:
        print(f"http://localhost:{server.server_port}/  (Ctrl-C ends)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    main()
