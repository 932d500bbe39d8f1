"""ONNX files on disk: external data beside the graph, found or named when missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx
from onnx.external_data_helper import uses_external_data

from runtime_py.errors import ArtifactCorrupt, ArtifactMissing

EXTERNAL_DATA_BYTES = 1 << 28
"""Weights larger than this go to a file beside the graph: protobuf ends at 2 GiB, and long
before that a file that can be mapped costs several copies less than one that is parsed."""


def read_graph(path: Path) -> onnx.ModelProto:
    """The graph in ``path`` without the bytes of its external data.

    Raises:
        ArtifactMissing: the file, or a data file it refers to, does not exist.
        ArtifactCorrupt: it is no ONNX file, or a data file is too short.
    """
    if not path.is_file():
        raise ArtifactMissing(f"{path} does not exist; expected an ONNX graph")
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception:
        raise ArtifactCorrupt(f"{path} is no ONNX graph, or is truncated; fetch it again") from None
    if not model.graph.node:
        raise ArtifactCorrupt(f"{path} holds no graph; fetch it again")
    for tensor in model.graph.initializer:
        if uses_external_data(tensor):
            _check_external(path, tensor)
    return model


def _check_external(path: Path, tensor: onnx.TensorProto) -> None:
    fields = {e.key: e.value for e in tensor.external_data}
    location = fields.get("location", "")
    data = (path.parent / location).resolve()
    if not location or not data.is_relative_to(path.parent.resolve()):
        raise ArtifactCorrupt(
            f"{path.name} keeps {tensor.name!r} in {location!r}, expected a file beside the graph"
        )
    if not data.is_file():
        raise ArtifactMissing(
            f"{path.name} keeps {tensor.name!r} in {location}, which is not beside it; "
            "copy both files"
        )
    end = int(fields.get("offset", 0)) + int(fields.get("length", 0))
    if data.stat().st_size < end:
        raise ArtifactCorrupt(
            f"{location} has {data.stat().st_size} bytes, {tensor.name!r} ends at {end}; "
            "fetch it again"
        )


def write_graph(model: onnx.ModelProto, path: Path, external_bytes: int) -> None:
    """Write ``model`` (with its data loaded) to ``path``, large weights in ``path`` + ".data"."""
    data = path.with_name(path.name + ".data")
    data.unlink(missing_ok=True)
    external = model.ByteSize() > external_bytes
    onnx.save_model(
        model,
        str(path),
        save_as_external_data=external,
        all_tensors_to_one_file=True,
        location=data.name,
        size_threshold=1024,
        convert_attribute=False,
    )


def copy_graph(path: Path, folder: Path) -> Path:
    """Copy the graph in ``path``, with any external data, into ``folder``; the copy's path."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in [path, *path.parent.glob(f"{path.name}*data*")]:
        shutil.copy2(file, folder / file.name)
    return folder / path.name
