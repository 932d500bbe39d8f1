"""Clients over HTTP on every host: several at once, and such that go away."""

from __future__ import annotations

import http.client
import json
import socket
import struct
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.serve.conftest import TIMEOUT_S, Server, command_of, running
from tests.serve.metrics import samples
from tests.serve.truth import continuation, ids_of

STORY: dict[str, Any] = {
    "model": "decoder",
    "prompt": "hi",
    "max_tokens": 390,
    "temperature": 0,
    "ignore_eos": True,
    "stream": True,
}


def metrics(server: Server) -> dict[tuple[str, ...], float]:
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=TIMEOUT_S) as response:
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        return samples(response.read().decode())


def left(server: Server) -> int:
    found = metrics(server)
    return int(found.get(("volery_http_requests_total", "/v1/completions", "499"), 0))


def begin(server: Server, **changes: Any) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=TIMEOUT_S)
    connection.request("POST", "/v1/completions", json.dumps(STORY | changes))
    return connection


def leave(server: Server, **changes: Any) -> None:
    """Ask for a stream, and go away in the midst of it."""
    connection = begin(server, **changes)
    response = connection.getresponse()
    assert response.status == 200
    assert response.readline().startswith(b"data: {")
    connection.close()
    response.close()


def ask_at_once(server: Server, body: dict[str, Any]) -> socket.socket:
    """A request in one packet: of others Deno does not tell when their client leaves."""
    host, port = server.url.removeprefix("http://").split(":")
    text = json.dumps(body)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(text)}\r\n\r\n"
    connection = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
    connection.sendall((head + text).encode())
    return connection


def reset(connection: socket.socket) -> None:
    """Close a connection for good: after an orderly end workerd would still answer."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def comes_true(is_so: Callable[[], bool]) -> bool:
    """Asks the server again until it is so, or has had its time."""
    end = time.monotonic() + TIMEOUT_S
    while not (so := is_so()) and time.monotonic() < end:
        pass
    return so


def settled(server: Server, leavers: int) -> bool:
    """Whether so many clients are known to have left, and nothing of them is left."""

    def has_settled() -> bool:
        found = metrics(server)
        blocks = found["volery_kv_blocks", "decoder"] - found["volery_kv_free_blocks", "decoder"]
        busy = (
            found["volery_requests", "decoder"]
            + found["volery_running_sequences", "decoder"]
            + found["volery_running_steps", "decoder"]
        )
        return left(server) >= leavers and busy == blocks == 0

    return comes_true(has_settled)


def generated(server: Server) -> float:
    return metrics(server)["volery_steps_total", "decoder"]


def test_G9_a_client_that_goes_away_frees_its_blocks(server: Server) -> None:
    server.client.completions.create(model="decoder", prompt="hi", max_tokens=1)  # it is loaded
    before = left(server)
    for number in range(4):
        leave(server, n=4)
        assert settled(server, before + number + 1)
    # What it asked for is not computed to its end, by whoever comes next.
    steps = generated(server)
    connection = begin(server, max_tokens=5)
    response = connection.getresponse()
    events = [line for line in response.read().decode().splitlines() if line]
    response.close()
    connection.close()
    assert events[-1] == "data: [DONE]"
    assert generated(server) - steps <= 6


def test_G9_a_client_that_goes_away_before_the_answer(server: Server) -> None:
    """Nothing was sent yet: the request's signal tells."""
    server.client.completions.create(model="decoder", prompt="hi", max_tokens=1)
    before = left(server)
    for number in range(3):
        steps = generated(server)
        connection = ask_at_once(server, STORY | {"stream": False, "n": 64})
        assert comes_true(lambda steps=steps: generated(server) > steps)
        reset(connection)
        assert settled(server, before + number + 1)
    assert server.client.completions.create(model="decoder", prompt="hi", max_tokens=1).choices


def test_G9_workers_without_the_request_signal_see_streams_left(
    app: Path, artifacts: dict[str, Path]
) -> None:
    """Cloudflare's own default, in which a request's signal never fires."""
    command = [*command_of("workerd", app, artifacts), "--no-request-signal"]
    with running(command, app, "workerd") as server:
        server.client.completions.create(model="decoder", prompt="hi", max_tokens=1)
        for number in range(4):
            leave(server, n=4)
            assert settled(server, number + 1)
        # The same of a stream of the package's own as a body.
        with urllib.request.urlopen(f"{server.url}/pieces", timeout=TIMEOUT_S) as response:
            whole = response.read().decode()
        assert len(whole) == 4 * 390
        steps = pieces_stats(server)["steps"]
        for _ in range(4):
            connection = http.client.HTTPConnection(
                server.url.removeprefix("http://"), timeout=TIMEOUT_S
            )
            connection.request("GET", "/pieces")
            response = connection.getresponse()
            assert response.read(1)
            reset(connection.sock)
            response.close()
            assert comes_true(lambda: is_idle(pieces_stats(server)))
        assert pieces_stats(server)["steps"] < steps + 4 * 300


def test_a_body_that_is_too_large_is_told_so(server: Server) -> None:
    """Clients send everything before they look for an answer; the connection lives on."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=TIMEOUT_S)
    for _ in range(2):
        connection.request("POST", "/v1/embeddings", b" " * (9 << 20))
        response = connection.getresponse()
        assert response.status == 413
        assert json.load(response)["error"]["code"] == "body_too_large"
    connection.close()


def pieces_stats(server: Server) -> dict[str, Any]:
    with urllib.request.urlopen(f"{server.url}/stats", timeout=TIMEOUT_S) as response:
        stats: dict[str, Any] = json.load(response)
    return stats


def is_idle(stats: dict[str, Any]) -> bool:
    held = stats["kv"]["numBlocks"] - stats["kv"]["freeBlocks"]
    return bool(stats["requests"] == stats["runningSteps"] == held == 0)


def test_concurrent_streams_share_steps(server: Server) -> None:
    """Eight clients: the texts of each alone, in steps of several."""

    def ask(number: int) -> tuple[str, int]:
        text, seqs = "", 0
        options: dict[str, Any] = {**STORY, "max_tokens": 300, "prompt": f"text {number}"}
        options["stream_options"] = {"include_usage": True}
        extra = {"ignore_eos": options.pop("ignore_eos")}
        for chunk in server.client.completions.create(**options, extra_body=extra):
            if chunk.choices:
                text += chunk.choices[0].text
            else:
                seqs = chunk.model_extra["volery"]["batch_seqs"]
        return text, seqs

    alone = [ask(number) for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    assert [text for text, _ in answers] == [text for text, _ in alone]
    for number, (text, _) in enumerate(answers):
        assert text.startswith(continuation(ids_of(f"text {number}"), 5))
    assert max(seqs for _, seqs in answers) > 1
