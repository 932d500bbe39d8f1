"""Clients over HTTP on every host: several at once, and such that go away."""

from __future__ import annotations

import http.client
import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.serve.conftest import Server
from tests.serve.metrics import samples
from tests.serve.truth import continuation, ids_of

POLLS = 100
STORY: dict[str, Any] = {
    "model": "decoder",
    "prompt": "hi",
    "max_tokens": 390,
    "temperature": 0,
    "ignore_eos": True,
    "stream": True,
}


def metrics(server: Server) -> dict[tuple[str, ...], float]:
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=60) as response:
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        return samples(response.read().decode())


def left(server: Server) -> int:
    found = metrics(server)
    return int(found.get(("volery_http_requests_total", "/v1/completions", "499"), 0))


def begin(server: Server, **changes: Any) -> tuple[http.client.HTTPConnection, Any]:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
    connection.request("POST", "/v1/completions", json.dumps(STORY | changes))
    return connection, connection.getresponse()


def settled(server: Server, leavers: int) -> bool:
    """Whether so many clients are known to have left, and nothing of them is left."""
    for _ in range(POLLS):
        # In workerd a step needs a request in which it can be run.
        server.client.completions.create(model="decoder", prompt="hi", max_tokens=1)
        found = metrics(server)
        blocks = found["volery_kv_blocks", "decoder"] - found["volery_kv_free_blocks", "decoder"]
        busy = found["volery_requests", "decoder"] + found["volery_running_sequences", "decoder"]
        if left(server) >= leavers and busy == blocks == 0:
            return True
    return False


def test_G9_a_client_that_goes_away_frees_its_blocks(server: Server) -> None:
    server.client.completions.create(model="decoder", prompt="hi", max_tokens=1)  # it is loaded
    before = left(server)
    # In workerd a request ends unheard with its client; others then help the rest of it on.
    is_told = server.host != "workerd"
    for number in range(3):
        connection, response = begin(server, n=4, max_tokens=390 if is_told else 60)
        assert response.status == 200
        assert response.readline().startswith(b"data: {")
        connection.close()
        response.close()
        assert settled(server, before + number + 1 if is_told else before)
    connection, response = begin(server, max_tokens=5)
    events = [line for line in response.read().decode().splitlines() if line]
    connection.close()
    assert events[-1] == "data: [DONE]"


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
