"""An open-loop HTTP client: sends each request at its time, however the others fare.

Latency counts from the moment at which a request was due to be sent, so a server that stalls
is charged for everybody that it made late.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one request.

    Attributes:
        status: of HTTP, 0 = the connection failed.
        latency_ms: from when it was due to be sent to the end of the answer.
    """

    status: int
    latency_ms: float


class Connections:
    """Keep-alive connections to one server, as many as are needed at once."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def post(self, path: str, body: bytes) -> int:
        """Send and read the whole answer; returns its status."""
        pair = self._idle.pop() if self._idle else await self._open()
        reader, writer = pair
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await writer.drain()
        header = await reader.readuntil(b"\r\n\r\n")
        status = int(header.split(b" ", 2)[1])
        length = 0
        for line in header.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        await reader.readexactly(length)
        self._idle.append(pair)
        return status

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._host, self._port, limit=1 << 22)

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()


async def replay(
    port: int, texts: Sequence[str], times_s: Sequence[float], path: str = "/embed"
) -> list[Answer]:
    """Send ``texts[i % len]`` at ``times_s[i]``; the answers in the same order."""
    connections = Connections("127.0.0.1", port)
    start = time.perf_counter() + 0.05

    async def one(i: int) -> Answer:
        due = start + times_s[i]
        await asyncio.sleep(max(due - time.perf_counter(), 0.0))
        body = json.dumps({"texts": [texts[i % len(texts)]]}).encode()
        try:
            status = await connections.post(path, body)
        except (OSError, asyncio.IncompleteReadError):
            status = 0
        return Answer(status, (time.perf_counter() - due) * 1e3)

    answers = await asyncio.gather(*[one(i) for i in range(len(times_s))])
    connections.close()
    return list(answers)
