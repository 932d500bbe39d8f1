"""``python -m toolchain``, and the console script."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or say how to install what it needs."""
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
