"""A static server on 127.0.0.1 for the tests: folders by prefix, and the faults of real ones."""

from __future__ import annotations

import hashlib
import re
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".json": "application/json",
    ".wasm": "application/wasm",
}
ISOLATION = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
}
PAGE = b"<!doctype html><title>App</title>"


@dataclass(frozen=True)
class Fault:
    """What is wrong with one answer.

    Attributes:
        cut: the connection drops after this part of the body.
        status: answered instead of the file.
        body: sent instead of the file's content.
    """

    cut: float = 1.0
    status: int = 200
    body: bytes | None = None


class Server(ThreadingHTTPServer):
    """Serves ``mounts`` (URL prefix -> folder).

    Attributes:
        isolate: send the headers that make a page cross-origin isolated.
        spa: answer a missing file with status 200 and a page, as single-page hosts do.
        ranges: know ``Range``; a server that does not always sends the whole file.
        headers: sent with every answer.
        requested: the paths asked for.
        resumed: of requests with ``Range``, the path and the headers that were obeyed.
        faults: by file name, what the next answers have; an answer takes the first.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, mounts: dict[str, Path], *, isolate: bool, spa: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.mounts = mounts
        self.isolate = isolate
        self.spa = spa
        self.ranges = True
        self.headers: dict[str, str] = dict(ISOLATION) if isolate else {}
        self.requested: list[str] = []
        self.resumed: list[tuple[str, int]] = []
        self.faults: dict[str, list[Fault]] = defaultdict(list)

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
    # Headers and body are two writes: Nagle's algorithm would hold the second one back until
    # the client's delayed acknowledgement of the first, 40 ms a request.
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.requested.append(path)
        file = self.server.find(path)
        if file is not None:
            self._send(path, file)
        elif self.server.spa:
            self._answer(200, {"Content-Type": TYPES[".html"]}, PAGE)
        else:
            self._answer(404, {"Content-Type": "text/plain"}, b"not found")

    def _send(self, path: str, file: Path) -> None:
        faults = self.server.faults[file.name]
        fault = faults.pop(0) if faults else Fault()
        if fault.status != 200:
            self._answer(fault.status, {"Content-Type": "text/plain"}, b"not now")
            return
        body = file.read_bytes() if fault.body is None else fault.body
        etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        headers = {
            "Content-Type": TYPES.get(file.suffix, "application/octet-stream"),
            "ETag": etag,
        }
        start = self._range_start(etag)
        if start is None:
            self._answer(200, headers, body, fault.cut)
            return
        self.server.resumed.append((path, start))
        headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        self._answer(206, headers, body[start:], fault.cut)

    def _range_start(self, etag: str) -> int | None:
        """Where a range that is to be obeyed begins."""
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if match is None or not self.server.ranges:
            return None
        return int(match[1]) if self.headers.get("If-Range", etag) == etag else None

    def _answer(self, status: int, headers: dict[str, str], body: bytes, cut: float = 1.0) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in {**headers, **self.server.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(body[: int(len(body) * cut)])
        except ConnectionError:
            self.close_connection = True  # the client aborted, which some tests ask it to
        if cut < 1:
            self.close_connection = True

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
