"""Serve the web demos on localhost, with the headers that let a page use threads.

python demo/serve_web.py [--port 8000]
"""

from __future__ import annotations

import argparse
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {
    "web": ROOT / "demo" / "web",
    "birds.txt": ROOT / "demo" / "birds.txt",
    "artifacts": ROOT / "artifacts",
    "package": ROOT / "workers",
    "dist": ROOT / "dist",
    "pyodide": ROOT / "demo" / "node_modules" / "pyodide",
}
TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm"}
HEADERS = {
    # Both together make the page cross-origin isolated: only then may threads share memory.
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cache-Control": "no-cache",
}


class Handler(SimpleHTTPRequestHandler):
    """Files of a few folders; nothing else of the checkout can be reached."""

    protocol_version = "HTTP/1.1"
    extensions_map = {**SimpleHTTPRequestHandler.extensions_map, **TYPES}  # noqa: RUF012

    def translate_path(self, path: str) -> str:
        relative = Path(super().translate_path(path)).relative_to(self.directory)
        if not relative.parts:
            return str(FOLDERS["web"] / "nothing")
        first, *rest = relative.parts
        folder = FOLDERS.get(first)
        return str(folder.joinpath(*rest) if folder else FOLDERS["web"] / "nothing")

    def do_GET(self) -> None:
        if self.path == "/":
            self.send_response(302)
            self.send_header("Location", "/web/")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        super().do_GET()

    def end_headers(self) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def make_server(port: int) -> ThreadingHTTPServer:
    """A server on 127.0.0.1; port 0 takes a free one."""
    return ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, directory="/"))


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve the web demos on localhost.")
    parser.add_argument("--port", type=int, default=8000)
    with make_server(parser.parse_args().port) as server:
        print(f"http://localhost:{server.server_port}/  (Ctrl-C ends)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    main()
