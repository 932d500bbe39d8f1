"""The ``toolchain`` command: one module per subcommand, one way to fail."""

from __future__ import annotations

import sys
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from runtime_py.errors import VoleryError
from toolchain.cli import bench, build, chat, embed, export, generate, inspect, simulate, verify

COMMANDS = (export, inspect, verify, build, embed, generate, chat, bench, simulate)


class _Group(TyperGroup):
    """Turns the errors that we know into one line and exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except VoleryError as e:
            if ctx.params.get("debug"):
                traceback.print_exc()
            message = " ".join(str(e).splitlines())
            print(f"error: {message}", file=sys.stderr)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


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
    """Run the command line and exit: 0, 1 for an error that we know, 2 for wrong usage."""
    make_app()()
