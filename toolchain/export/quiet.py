"""Keeps exporters quiet: their progress bars, warnings and logs are not our user's business."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator

_LOGGERS = (
    "transformers",
    "optimum",
    "torch",
    "onnxscript",
    "onnx_ir",
    "onnxruntime",
    "fusion_base",
)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No warnings, logs or prints from the exporters inside the block; errors still raise."""
    disabled = logging.root.manager.disable
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    sink = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(sink):
        warnings.simplefilter("ignore")
        logging.disable(logging.ERROR)
        try:
            with contextlib.redirect_stderr(sink):
                yield
        finally:
            logging.disable(disabled)
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)
