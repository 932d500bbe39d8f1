"""Decoding speed next to llama.cpp: ``python -m bench.decoder --artifact DIR --gguf FILE``.

Bare steps on one thread, in Node and on wasmtime, and llama.cpp on the same weights:
tokens per second of a prompt, of one stream, of eight in one batch and of eight one after
another. Engines take turns at every workload, so that a busy machine slows all alike;
figures are medians of the rounds, in processor time. A bare read loop and a bare
dot-product loop of the same rounds say what bounds a step.

llama.cpp runs in an environment of its own:

    python -m venv llama && llama/bin/pip install llama-cpp-python==0.3.36 numpy
    python -m bench.decoder --artifact DIR --gguf FILE --llama-python llama/bin/python
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from tokenizers import Tokenizer

from bench.decoder import workload as work
from bench.decoder.bounds import work_of
from bench.decoder.workload import Workload
from bench.encoder.engine import Engine
from bench.kernels.__main__ import default_node
from runtime_py.program import Program
from toolchain.build import VARIANTS, build

HERE = Path(__file__).parent
PREPARE_WASM = HERE.parents[1] / "workers" / "scripts" / "prepare-wasm.js"
NODE, WASMTIME, LLAMA, BARE = "Volery in Node", "Volery on wasmtime", "llama.cpp", "bare loops"
BARS = {**{w.name: 2.0 for w in work.PREFILLS}, work.ONE.name: 1.2, work.TOGETHER.name: 2.5}
"""Of Node's speed over llama.cpp's."""
BATCHING_BARS = {NODE: 3.0, WASMTIME: 2.0}
"""Of eight streams together over the same one after another."""
ENCODING_BAR_US = 50

Answers = dict[str, dict[str, list[dict[str, Any]]]]
"""Of each engine to each workload, round by round."""


def engines(args: argparse.Namespace, file: Path, scratch: Path) -> list[Engine]:
    def script(name: str, *rest: str) -> list[str]:
        return [args.node, str(HERE / name), *rest]

    relaxed = next(v for v in VARIANTS if v.name == "relaxed")
    (bare,) = build(scratch, variants=[relaxed], bench=True)
    on_wasmtime = [sys.executable, "-m", "bench.decoder.on_wasmtime"]
    made = [
        Engine(BARE, script("bare.mjs", str(bare.path))),
        Engine(NODE, script("volery.mjs", str(args.artifact), str(file))),
        Engine(WASMTIME, [*on_wasmtime, str(args.artifact), str(file)]),
    ]
    if args.llama_python is None:
        print("llama.cpp is left out: --help says how to install it, --llama-python where it is")
    else:
        llama = [str(args.llama_python), str(HERE / "llama.py"), str(args.gguf), str(file)]
        made.append(Engine(LLAMA, llama))
    return made


def measure(tested: list[Engine], workloads: Sequence[Workload], rounds: int) -> Answers:
    """Ask every engine for every workload, in turn."""
    for engine in tested:
        # V8 compiles the kernels a second time once they have run for a while.
        for w in workloads if engine.name == NODE else workloads[:1]:
            engine.ask(w.name)
    answers: Answers = {e.name: {w.name: [] for w in workloads} for e in tested}
    for _ in range(rounds):
        for w in workloads:
            for engine in tested:
                answers[engine.name][w.name].append(engine.ask(w.name))
    return answers


def workloads_of(answers: Answers) -> list[Workload]:
    """Those that were measured."""
    return [w for w in work.WORKLOADS if w.name in answers[NODE]]


def speeds(answers: Answers, engine: str, w: Workload, clock: str = "cpu_s") -> list[float]:
    """Tokens per second, round by round."""
    return [w.counted / a[clock] for a in answers[engine][w.name]]


def ratio(over: list[float], under: list[float]) -> float:
    """The median of the rounds' ratios."""
    return median(a / b for a, b in zip(over, under, strict=True))


def verdict(value: float, bar: float) -> str:
    return f"{value:.2f} (bar {bar}: {'ok' if value >= bar else 'MISSED'})"


def print_speeds(answers: Answers) -> None:
    names = [n for n in (NODE, WASMTIME, LLAMA) if n in answers]
    print(f"\n{'tokens a second':22}" + "".join(f"{n:>20}" for n in names))
    for w in workloads_of(answers):
        row = f"{w.name:22}"
        for name in names:
            row += f"{median(speeds(answers, name, w)):20.1f}"
        if LLAMA in answers:
            value = ratio(speeds(answers, NODE, w), speeds(answers, LLAMA, w))
            bar = BARS.get(w.name)
            row += f"   Node : llama.cpp = {verdict(value, bar) if bar else f'{value:.2f}'}"
        print(row)
    print()
    if work.TOGETHER not in workloads_of(answers):
        return
    for name, bar in BATCHING_BARS.items():
        value = ratio(speeds(answers, name, work.TOGETHER), speeds(answers, name, work.IN_TURN))
        print(
            f"{name}: {work.STREAMS} together over {work.STREAMS} in turn = {verdict(value, bar)}"
        )


def print_bounds(answers: Answers, program: Program, chunk: int) -> None:
    """How near Node comes to the bare loops of the same rounds."""
    print(f"\n{'Node, a step':22}{'ms':>8}{'MB':>8}{'MOP':>8}{'bound, ms':>11}  of the bound, by")
    for w in (w for w in workloads_of(answers) if w is not work.IN_TURN):
        bare = answers[BARE][w.name]
        read = median(b["read_bytes_per_s"] for b in bare)
        dots = median(b["dot_operations_per_s"] for b in bare)
        if w.prompt:
            rows, wanted, steps = min(chunk, w.prompt), 1, max(1.0, w.prompt / chunk)
            cached = w.prompt
        else:
            rows = wanted = w.rows
            cached, steps = rows * (work.CONTEXT + w.tokens // 2), w.tokens - 1
        step = work_of(program, rows, wanted, cached)
        least, what = step.seconds(read, dots)
        taken = median(a["cpu_s"] for a in answers[NODE][w.name]) / steps
        print(
            f"{w.name:22}{taken * 1e3:8.2f}{step.read / 1e6:8.1f}{step.operations / 1e6:8.0f}"
            f"{least * 1e3:11.2f}  {least / taken:.0%} by {what} "
            f"({read / 1e9:.1f} GB/s, {dots / 1e9:.0f} GOP/s)"
        )


def print_encoding(node: str) -> None:
    """What JavaScript adds to a step of many sequences."""
    command = [node, str(HERE / "encode.mjs")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    for listed, us in result["us"]:
        bar = f" (bar {ENCODING_BAR_US}: {'ok' if us <= ENCODING_BAR_US else 'MISSED'})"
        print(
            f"checking, writing and reading a step of {result['seqs']} sequences, "
            f"{listed} penalized tokens each: {us:.0f} us{bar if not listed else ''}"
        )


def check_same_model(answers: Answers) -> None:
    """Greedy tokens agree at first; 8-bit activations let some texts fork."""
    for name, of in answers.items():
        if name in (NODE, BARE):
            continue
        firsts = [
            (a[0], b[0])
            for w in workloads_of(answers)
            for a, b in zip(answers[NODE][w.name][0]["ids"], of[w.name][0]["ids"], strict=True)
        ]
        same = sum(a == b for a, b in firsts)
        print(f"first tokens like {NODE}'s: {name} {same} of {len(firsts)}")
        if same < len(firsts) / 2:
            raise SystemExit(f"{name} computes something else than {NODE}")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.decoder",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--artifact", type=Path, required=True, help="a decoder's artifact")
    parser.add_argument("--gguf", type=Path, required=True, help="the file it was made from")
    parser.add_argument("--llama-python", type=Path, help="a Python that has llama-cpp-python")
    parser.add_argument("--node", default=default_node())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("prompts", "streams"), help="half of the workloads")
    parser.add_argument("--chunk", type=int, default=256, help="most tokens of Volery's steps")
    parser.add_argument("--json", type=Path, help="write every answer here")
    args = parser.parse_args()
    subprocess.run([args.node, str(PREPARE_WASM)], check=True)
    program = Program.decode((args.artifact / "program.bin").read_bytes())
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        file = Path(scratch, "workload.json")
        work.write(file, Tokenizer.from_file(str(args.artifact / "tokenizer.json")), args.chunk)
        tested = [stack.enter_context(e) for e in engines(args, file, Path(scratch))]
        workloads = [w for w in work.WORKLOADS if args.only in (None, w.kind)]
        answers = measure(tested, workloads, args.rounds)
    if args.json is not None:
        args.json.write_text(json.dumps(answers))
    check_same_model(answers)
    print_speeds(answers)
    print_bounds(answers, program, args.chunk)
    print_encoding(args.node)


if __name__ == "__main__":
    main()
