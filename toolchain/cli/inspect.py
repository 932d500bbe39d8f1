"""``toolchain inspect``: what is in an artifact."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(inspect)


def inspect(
    artifact: Annotated[Path, typer.Argument(help="Folder that `toolchain export` wrote.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print an artifact's limits, sizes, tensors and program."""
    from toolchain.verify.inspect import inspect_artifact

    facts = inspect_artifact(artifact)
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False, indent=1))
    else:
        show(facts, Console())


def show(facts: Mapping[str, Any], console: Console) -> None:
    """Print `inspect_artifact`'s facts as tables."""
    model, limits, memory = facts["model"], facts["limits"], facts["memory"]
    quantization, embedding, numerics = (
        facts[k] for k in ("quantization", "embedding", "numerics")
    )
    rows = [
        ("model", f"{model['id']} ({model['architecture']}), licence {model['license']}"),
        ("tasks", ", ".join(facts["tasks"])),
        ("max tokens", f"{limits['max_tokens']} ({limits['max_tokens_source']})"),
        ("positions", str(limits["max_positions"] or "unlimited")),
        ("vocabulary", str(limits["vocab_size"])),
    ]
    if embedding:
        normalized = ", normalized" if embedding["normalized"] else ""
        rows.append(
            (
                "embedding",
                f"{embedding['dimensions']} dimensions, {' + '.join(embedding['pooling'])} pooling"
                f"{normalized}, {embedding['similarity']} similarity",
            )
        )
        rows += [(f"prompt {name}", repr(text)) for name, text in embedding["prompts"].items()]
    generation = facts["generation"]
    if generation:
        ends = ", ".join(map(str, generation["eos_token_ids"]))
        chat = "with" if generation["chat_template"] else "without"
        rows.append(
            (
                "generation",
                f"context {generation['max_context']:,} tokens, {chat} a chat template, ends at "
                f"{ends or 'no token'}, {generation['kv_bytes_per_token']:,} bytes of cache "
                "a token",
            )
        )
    rows.append(
        (
            "quantization",
            f"{quantization['name']}: linear {quantization['linear']}, embedding "
            f"{quantization['embedding']}, activations {quantization['activations']}",
        )
    )
    if numerics:
        rows += _accuracy(numerics)
    rows += [
        ("parameters", f"{facts['parameters']:,}"),
        ("size", f"{facts['total_bytes']:,} bytes"),
        (
            "memory",
            f"weights {memory['weights_bytes']:,} bytes, {memory['bytes_per_token']:,} a token, "
            f"{memory['bytes_per_seq']:,} a sequence, {memory['bytes_per_wanted']:,} a row of "
            "logits",
        ),
    ]
    _table(console, None, ("", ""), rows)
    _table(console, "files", ("name", "bytes"), facts["files"].items())
    sizes = [*facts["bytes_by_format"].items(), *facts["bytes_by_op"].items()]
    _table(console, "weights by format and by op", ("kind", "bytes"), sizes)
    tensors = [(t["name"], t["format"], t["shape"], t["bytes"]) for t in facts["tensors"]]
    _table(console, "tensors", ("name", "format", "shape", "bytes"), tensors)
    slots = [(i, s["rows"].lower(), s["width"]) for i, s in enumerate(facts["slots"])]
    _table(console, "slots", ("slot", "rows", "width"), slots)
    _table(
        console,
        f"program (output in slot {facts['output_slot']})",
        ("op", "kind", "out", "inputs", "tensors", "options"),
        [(i, *_op(op)) for i, op in enumerate(facts["ops"])],
    )


def _accuracy(numerics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What quantization cost, of an embedding model or of a language model."""
    if "perplexity" not in numerics:
        return [
            (
                "accuracy",
                f"worst cosine {numerics['worst_cosine']:.6f}, mean "
                f"{numerics['mean_cosine']:.6f} over {numerics['texts']} texts "
                f"(gate {numerics['gate']:g})",
            )
        ]
    rise = numerics["perplexity"] / numerics["perplexity_f32"] - 1
    pairs = zip(numerics["greedy_equal"], numerics["greedy_tokens"], strict=True)
    greedy = ", ".join(f"{equal}/{tokens}" for equal, tokens in pairs)
    total = numerics["exact_tensors"] + numerics["rounded_tensors"]
    return [
        (
            "accuracy",
            f"perplexity {numerics['perplexity']:.3f} ({rise:+.2%}), same top token "
            f"{numerics['top1']:.2%} over {numerics['tokens']} tokens (gate "
            f"{numerics['max_perplexity_rise']:.2%}, {numerics['min_top1']:.1%})",
        ),
        ("greedy answers", f"{greedy} tokens as in f32"),
        (
            "weights",
            f"{numerics['exact_tensors']} of {total} stored matrices exact, worst "
            f"{numerics['worst_weight_error']:.2%} RMS",
        ),
    ]


def _op(op: Mapping[str, Any]) -> tuple[object, ...]:
    out = f"{op['out']}, {op['out2']}" if "out2" in op else op["out"]
    options = {k: v for k, v in op["options"].items() if v not in (0, 0.0, "none")}
    return (op["kind"], out, _pairs(op["ins"]), "\n".join(op["tensors"].values()), _pairs(options))


def _pairs(values: Mapping[str, Any]) -> str:
    return " ".join(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in values.items())


def _table(console: Console, title: str | None, columns: Sequence[str], rows: Any) -> None:
    table = Table(
        title=title, title_justify="left", show_header=any(columns), box=None, pad_edge=False
    )
    for name in columns:
        numeric = name in ("bytes", "width", "slot", "op", "out")
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(f"{v:,}" if isinstance(v, int) else str(v) for v in row))
    console.print(table)
    console.print()
