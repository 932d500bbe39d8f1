"""Whole-corpus speed in Node, beside ONNX Runtime on the same texts: ``python -m bench.encoder``.

Every engine is a process of its own that has loaded, warmed up and chosen its best batch
size before the first round. Rounds are interleaved, so that a busy machine slows all
alike. One-thread figures are processor time, which other processes hardly add to; for two
threads wall time counts, which needs a quiet machine. Medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from tokenizers import Tokenizer

from bench.encoder.corpus import build_corpus, read_corpus
from bench.encoder.engine import Engine, node_command
from bench.encoder.models import export, linear_operations_per_token, quantize_dynamic
from bench.kernels.__main__ import default_node

HERE = Path(__file__).parent
WORK = HERE.parents[1] / "build" / "bench-encoder"
PREPARE_WASM = HERE.parents[1] / "workers" / "scripts" / "prepare-wasm.js"
MAX_TOKENS = 256
NATIVE, WEB = "ONNX Runtime native int8, 1 thread", "onnxruntime-web int8, 1 thread"
ONE, PAIR, TOGETHER = "Volery, 1 thread", "Volery, 2 threads, a step each", "Volery, 2 per step"
WASMTIME, WASMTIME_2 = "Volery on wasmtime, 1 thread", "Volery on wasmtime, 2 threads"
SAME_MODEL = 0.95
"""Least cosine between engines: dynamic int8 alone is off by as much as 0.02."""


def cosine(a: list[float], b: list[float]) -> float:
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def engines(node: str, artifact: Path, graph: Path, sequences: Path) -> list[Engine]:
    volery = [str(artifact), str(sequences)]
    result = [
        Engine(ONE, node_command(node, "volery.mjs", *volery, "1"), "together"),
        Engine(PAIR, node_command(node, "volery.mjs", *volery, "2"), "side by side"),
        Engine(TOGETHER, node_command(node, "volery.mjs", *volery, "2"), "together"),
        Engine(
            NATIVE,
            [sys.executable, "-m", "bench.encoder.ort_native", str(graph), str(sequences)],
        ),
    ]
    on_wasmtime = [sys.executable, "-m", "bench.encoder.on_wasmtime", *volery]
    result += [Engine(WASMTIME, [*on_wasmtime, "1"]), Engine(WASMTIME_2, [*on_wasmtime, "2"])]
    if (HERE / "node_modules" / "onnxruntime-web").is_dir():
        command = node_command(node, "ort_web.mjs", str(graph), str(sequences))
        result.append(Engine(WEB, command))
    else:
        print("onnxruntime-web is left out: run `npm ci` in bench/encoder to compare with it")
    return result


def print_speed(tested: dict[str, Engine], texts: int) -> None:
    print(f"\n{'texts a second':36}{'cpu':>8}{'wall':>8}   batch")
    for e in tested.values():
        cpu, wall = texts / median(e.cpu_s), texts / median(e.wall_s)
        print(f"{e.name:36}{cpu:8.1f}{wall:8.1f}   {e.ready['batch']}")
    speed = texts / median(tested[ONE].cpu_s)
    print()
    for other, bar in ((NATIVE, 0.4), (WEB, 2.5)):
        if other in tested:
            ratio = speed * median(tested[other].cpu_s) / texts
            print(
                f"{ONE} : {other} = {ratio:.2f} (bar {bar}: {'ok' if ratio >= bar else 'MISSED'})"
            )
    for name, single in ((PAIR, ONE), (TOGETHER, ONE), (WASMTIME_2, WASMTIME)):
        rounds = zip(tested[single].wall_s, tested[name].wall_s, strict=True)
        ratio = median(one / two for one, two in rounds)
        limit = 2 * median(tested[single].cpu_s) / median(tested[name].cpu_s)
        print(
            f"{name} : {single} = {ratio:.2f} wall (bar 1.7; "
            f"its processor time would allow {limit:.2f})"
        )


def print_distance(tested: dict[str, Engine], operations: float, bare_gops: float) -> None:
    seconds = median(tested[ONE].cpu_s)
    ideal = operations / bare_gops / 1e9
    print(
        f"linear operations / bare dot loop ({bare_gops:.0f} GOP/s) = {ideal:.3f} s, "
        f"the corpus takes {seconds:.3f} s: {ideal / seconds:.0%} of that limit"
    )


def bare_dot_gops(node: str) -> float:
    """Speed of the relaxed dot product without scales, from ``bench.kernels``."""
    command = [sys.executable, "-m", "bench.kernels", "--node", node, "--only", "kernels"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=True)
    (line,) = (x for x in done.stdout.splitlines() if x.strip().startswith("bare_dot"))
    return float(line.split()[1])


def print_loading(node: str, artifact: Path, sequences: Path) -> None:
    command = node_command(node, "load.mjs", str(artifact), str(sequences))
    runs = [
        json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        for _ in range(5)
    ]
    memory = runs[0]["memory"]
    peak = median(r["peak_bytes"] for r in runs)
    allowed = 1.2 * memory["weights"] + memory["workspaces"]
    verdict = "ok" if peak <= allowed else "MISSED"
    print(
        f"\nloading: {median(r['load_ms'] for r in runs):.0f} ms, first embedding after "
        f"{median(r['first_ms'] for r in runs):.0f} ms; peak {peak / 1e6:.1f} MB over an empty "
        f"Node (bar 1.2 x weights + arena = {allowed / 1e6:.1f} MB: {verdict})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.encoder", description=__doc__)
    parser.add_argument("--corpus", type=Path, help='JSON {"texts": [..]}; default: docstrings')
    parser.add_argument("--artifact", type=Path, help="an i8 artifact; default: export one")
    parser.add_argument("--onnx", type=Path, help="the f32 graph it was made from")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--node", default=default_node())
    args = parser.parse_args()
    if (args.artifact is None) != (args.onnx is None):
        parser.error("--artifact and --onnx go together")
    WORK.mkdir(parents=True, exist_ok=True)
    subprocess.run([args.node, str(PREPARE_WASM)], check=True)
    artifact, graph = (args.artifact, args.onnx) if args.artifact else export(WORK)
    int8 = quantize_dynamic(graph, WORK)

    tokenizer = Tokenizer.from_file(str(artifact / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    texts = read_corpus(args.corpus) if args.corpus else build_corpus(tokenizer)
    ids = [e.ids for e in tokenizer.encode_batch(texts)]
    lengths = sorted(map(len, ids))
    print(
        f"{len(ids)} texts, {lengths[0]} to {lengths[-1]} tokens, median "
        f"{median(lengths):.0f}, {sum(lengths)} in all; {args.rounds} rounds"
    )
    sequences = WORK / "sequences.json"
    sequences.write_text(json.dumps(ids))

    with ExitStack() as stack:
        tested = {
            e.name: stack.enter_context(e) for e in engines(args.node, artifact, int8, sequences)
        }
        for e in tested.values():
            similarity = cosine(e.ready["first"], tested[ONE].ready["first"])
            if similarity < SAME_MODEL:
                raise SystemExit(f"{e.name} computes something else: cosine {similarity:.3f}")
        for _ in range(args.rounds):
            for e in tested.values():
                e.run()
    print_speed(tested, len(ids))
    operations = linear_operations_per_token(artifact) * sum(lengths)
    print_distance(tested, operations, bare_dot_gops(args.node))
    print_loading(args.node, artifact, sequences)


if __name__ == "__main__":
    main()
