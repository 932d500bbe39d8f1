"""``python -m toolchain``, and the console script."""

from __future__ import annotations

import os
import signal
import sys

_INTERRUPTED = 130


def main() -> None:
    """Run the command line, or say how to install what it needs."""
    # Until a command runs there is nothing to clean up, and what imports modules may
    # swallow an exception.
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(_INTERRUPTED))
    try:
        from toolchain.cli.app import main as run
    except ModuleNotFoundError as e:
        if e.name not in ("typer", "rich"):
            raise
        print(
            f"error: the command line needs {e.name}, which is not installed; "
            "run `pip install 'volery[cli]'`",
            file=sys.stderr,
        )
        sys.exit(1)
    run()


if __name__ == "__main__":
    main()
