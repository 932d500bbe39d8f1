"""BentoML's adaptive batching against our scheduler, for real.

    python -m bench.batching.against_bentoml ARTIFACT --server-python PYTHON [--seconds N]

PYTHON is an interpreter that has bentoml, wasmtime, numpy and tokenizers. Behind both servers
is the same artifact on the same wasm runtime with one thread, in front of both the same web
server (uvicorn), and both get the same texts at the same times over 127.0.0.1. Both are told
the SLO, less what the way to the client and back takes: BentoML as ``max_latency_ms``, we as
the deadline of each request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from bench.batching.load_client import Answer, replay
from bench.encoder.corpus import build_corpus
from toolchain.simulate.workloads import arrivals

ROOT = Path(__file__).parents[2]
SERVERS = {
    "bentoml": ("-m", "bentoml", "serve", "bench.batching.bentoml_service:Embedder", "--port"),
    "volery": ("-m", "uvicorn", "--log-level", "error", "bench.batching.volery_service:app",
               "--port"),
}  # fmt: skip
SHAPES = {"poisson": arrivals.poisson, "bursts": arrivals.mmpp}
_WARM_UP = 40  # BentoML trains on its first 11 batches


@contextmanager
def serving(name: str, python: str, artifact: Path, slo_ms: int) -> Iterator[int]:
    """A server that is ready; its port."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory() as home:
        env = {
            **os.environ,
            "VOLERY_ARTIFACT": str(artifact.resolve()),
            "VOLERY_SLO_MS": str(slo_ms),
            "BENTOML_DO_NOT_TRACK": "True",
            "BENTOML_HOME": home,
            "PYTHONPATH": str(ROOT),
        }
        process = subprocess.Popen(
            [python, *SERVERS[name], str(port)],
            cwd=ROOT,
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            _wait_until_ready(process, port)
            yield port
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Stop the server and every worker that it started."""
    for sign, patience in ((signal.SIGTERM, 10.0), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        try:
            process.wait(patience)
            return
        except subprocess.TimeoutExpired:
            continue


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, limit_s: float = 60) -> None:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"the server ended with code {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise SystemExit(f"the server was not ready after {limit_s:g} s")


def service_ms(port: int, texts: Sequence[str]) -> float:
    """Mean time of one text at a time: what capacity is measured with."""
    times = [i * 1.0 for i in range(1)]
    total = []
    for text in texts:
        (answer,) = asyncio.run(replay(port, [text], times[:1]))
        total.append(answer.latency_ms)
    return statistics.mean(total)


def summary(name: str, answers: Sequence[Answer], slo_ms: float, seconds: float) -> str:
    good = [a for a in answers if a.status == 200]
    in_time = sum(a.latency_ms <= slo_ms for a in good)
    refused = sum(a.status in (0, 503) for a in answers)
    p50, p99 = np.percentile([a.latency_ms for a in good], (50, 99)) if good else (0, 0)
    return (
        f"{name:<9} {len(answers):>8} {in_time / seconds:>10.2f} "
        f"{100 * in_time / len(answers):>8.1f}% {refused:>8} {p50:>8.0f} {p99:>8.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--server-python", required=True)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="poisson")
    parser.add_argument("--rate", type=float, help="requests per second (by default: by load)")
    parser.add_argument("--load", type=float, default=0.9, help="of what one text at a time takes")
    parser.add_argument("--slo-ms", type=int, default=250)
    parser.add_argument("--transport-ms", type=int, default=10, help="kept free of the SLO")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--server", choices=sorted(SERVERS), action="append")
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(args.artifact / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    texts = build_corpus(tokenizer)
    random.Random(args.seed).shuffle(texts)
    rate = args.rate
    print(f"{'server':<9} {'requests':>8} {'goodput/s':>10} {'in time':>9} {'refused':>8} "
          f"{'p50 ms':>8} {'p99 ms':>8}")  # fmt: skip
    for name in args.server or ("volery", "bentoml"):
        told_ms = args.slo_ms - args.transport_ms
        with serving(name, args.server_python, args.artifact, told_ms) as port:
            warm = [0.06 * i for i in range(_WARM_UP)]
            asyncio.run(replay(port, texts[:7], warm))
            if rate is None:
                rate = args.load * 1e3 / service_ms(port, texts[:64])
            shape = SHAPES[args.shape]
            times = list(shape(rate, args.seconds, random.Random(args.seed)))
            answers = asyncio.run(replay(port, texts, [t / 1e9 for t in times]))
        print(summary(name, answers, args.slo_ms, args.seconds), flush=True)
    facts = {"rate": round(rate or 0, 2), "shape": args.shape, "slo_ms": args.slo_ms,
             "seconds": args.seconds, "seed": args.seed}  # fmt: skip
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
