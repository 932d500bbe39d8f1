"""An engine under test: a process that runs the whole corpus each time it is asked."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self


@dataclass
class Engine:
    """A process that answers lines of JSON with lines of JSON.

    It says ``{"ready": ..}`` once it has loaded, warmed up and chosen its batch size; for
    each ``{"run": mode}`` it embeds every text and answers ``{"wall_s", "cpu_s"}``.
    """

    name: str
    command: list[str]
    mode: str = ""
    ready: dict[str, Any] = field(default_factory=dict)
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    _process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.ready = self._read()["ready"]
        return self

    def __exit__(self, *_: object) -> None:
        process = self._running()
        process.stdin.close()
        process.wait(timeout=30)

    def run(self) -> None:
        answer = self.ask(self.mode)
        self.wall_s.append(answer["wall_s"])
        self.cpu_s.append(answer["cpu_s"])

    def ask(self, mode: str) -> dict[str, Any]:
        """The answer to ``{"run": mode}``."""
        process = self._running()
        process.stdin.write(json.dumps({"run": mode}) + "\n")
        process.stdin.flush()
        return self._read()

    def _running(self) -> Any:
        assert self._process is not None, "use the engine as a context"
        return self._process

    def _read(self) -> dict[str, Any]:
        process = self._running()
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended with {process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def node_command(node: str, script: str, *args: str) -> list[str]:
    return [node, str(Path(__file__).with_name(script)), *args]
