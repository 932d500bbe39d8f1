"""The ``toolchain`` command: one module per subcommand, one way to fail."""

from __future__ import annotations

import errno
import signal
import sys
import traceback
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from runtime_py.errors import VoleryError
from toolchain.cli import bench, build, chat, embed, export, generate, inspect, simulate, verify

COMMANDS = (export, inspect, verify, build, embed, generate, chat, bench, simulate)


_EXTRAS: Mapping[str, tuple[str, ...]] = {
    "export": (
        "gguf", "huggingface_hub", "onnx", "onnxruntime", "onnxscript", "optimum", "safetensors",
        "torch", "transformers",
    ),
    "native": ("numpy", "wasmtime"),
}  # fmt: skip
"""What a command may find missing: extra -> its packages."""


class _Group(TyperGroup):
    """Turns the errors that we know into one line and exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except (VoleryError, OSError, ModuleNotFoundError) as e:
            message = _message(e)
            if message is None:
                raise
            if ctx.params.get("debug"):
                traceback.print_exc()
            print(f"error: {message}", file=sys.stderr)
            raise typer.Exit(1) from None


def _message(error: Exception) -> str | None:
    """One line for the user; None for what is no fault of theirs."""
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        extra = next((extra for extra, names in _EXTRAS.items() if package in names), None)
        if extra is None:
            return None
        return (
            f"this command needs {package}, which is not installed; "
            f"run `pip install 'volery[{extra}]'`"
        )
    if isinstance(error, OSError):
        if error.errno == errno.EPIPE:  # whoever read the output has gone
            return None
        where = f"{error.filename}: " if error.filename is not None else ""
        return where + " ".join((error.strerror or str(error)).split())
    return " ".join(str(error).splitlines())


def make_app() -> typer.Typer:
    """The application with every command."""
    app = typer.Typer(
        name="toolchain",
        cls=_Group,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help="Turn embedding and language models into small WebAssembly artifacts, and run them.",
    )

    @app.callback()
    def options(
        debug: Annotated[
            bool, typer.Option("--debug", help="Show where an error comes from.")
        ] = False,
    ) -> None:
        pass  # `_Group` reads it

    for command in COMMANDS:
        command.register(app)
    return app


def main() -> None:
    """Run the command line and exit: 0, 1 for an error that we know, 2 for wrong usage,
    130 after Ctrl-C, 143 after SIGTERM."""
    command = typer.main.get_command(make_app())
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _terminate)
    command()


def _terminate(number: int, frame: object) -> None:
    """End as an exception does, so that temporary files go."""
    sys.exit(128 + number)
