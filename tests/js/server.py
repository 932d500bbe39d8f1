"""A static server on 127.0.0.1 for the tests: folders by prefix, and the faults of real ones."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".json": "application/json",
    ".wasm": "application/wasm",
}
ISOLATION = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
}


class Server(ThreadingHTTPServer):
    """Serves ``mounts`` (URL prefix -> folder).

    Attributes:
        isolate: send the headers that make a page cross-origin isolated.
        spa: answer a missing file with status 200 and a page, as single-page hosts do.
        headers: sent with every answer.
        requested: the paths asked for.
    """

    daemon_threads = True

    def __init__(self, mounts: dict[str, Path], *, isolate: bool, spa: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.mounts = mounts
        self.isolate = isolate
        self.spa = spa
        self.headers: dict[str, str] = dict(ISOLATION) if isolate else {}
        self.requested: list[str] = []

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def share(self, folder: Path) -> str:
        """Serve ``folder`` too, and return its URL."""
        prefix = f"/at{folder.resolve()}/"
        self.mounts[prefix] = folder
        return self.origin + prefix

    def find(self, path: str) -> Path | None:
        for prefix, folder in self.mounts.items():
            if path.startswith(prefix):
                file = folder / path.removeprefix(prefix)
                return file if file.is_file() else None
        return None


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.requested.append(path)
        file = self.server.find(path)
        if file is not None:
            self._answer(200, TYPES.get(file.suffix, "application/octet-stream"), file.read_bytes())
        elif self.server.spa:
            self._answer(200, TYPES[".html"], b"<!doctype html><title>App</title>")
        else:
            self._answer(404, "text/plain", b"not found")

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(body)
        except ConnectionError:
            self.close_connection = True  # the client aborted, which some tests ask it to

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(
    mounts: dict[str, Path], *, isolate: bool = True, spa: bool = False
) -> Iterator[Server]:
    server = Server(mounts, isolate=isolate, spa=spa)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
