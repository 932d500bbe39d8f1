"""Write the golden traces: what the core decides, for every host to replay.

    python -m tests.golden.generate          # writes traces.jsonl.gz and index.json
    python -m tests.golden.generate --check  # fails if they are not what the core does

All traces are in one compressed file, each a header line and one line per call of the
core (`runtime_py.batching.trace`). The index tells, per trace, its first line, its number
of lines, and the digest of its decisions. The same commit always gives the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from pathlib import Path

from runtime_py.batching import replay
from tests.golden.scenarios import make, names

FOLDER = Path(__file__).parent
TRACES, INDEX = FOLDER / "traces.jsonl.gz", FOLDER / "index.json"


def build() -> tuple[bytes, str]:
    """The two files' contents."""
    lines: list[str] = []
    index = {}
    for name in names():
        trace = make(name)
        index[name] = {"line": len(lines), "lines": len(trace), "digest": replay(trace)}
        lines += trace
    packed = gzip.compress("".join(lines).encode(), 9, mtime=0)
    return packed, json.dumps(index, indent=1) + "\n"


def load() -> dict[str, tuple[list[str], str]]:
    """Name -> (lines, digest) of every trace on disk."""
    lines = gzip.decompress(TRACES.read_bytes()).decode().splitlines(keepends=True)
    index = json.loads(INDEX.read_text())
    return {
        name: (lines[at["line"] : at["line"] + at["lines"]], at["digest"])
        for name, at in index.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Write or check the golden traces.")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    packed, index = build()
    if args.check:
        same = gzip.decompress(TRACES.read_bytes()) == gzip.decompress(packed)
        sys.exit(0 if same and INDEX.read_text() == index else "the golden traces are stale")
    TRACES.write_bytes(packed)
    INDEX.write_text(index)
    print(f"{len(json.loads(index))} traces, {len(packed)} bytes")


if __name__ == "__main__":
    main()
