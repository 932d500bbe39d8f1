"""Row writers. Each appends to one partial file that may be cut back to any checkpoint.

=========  ==========================================================================
npy        128 bytes reserved for the header, then rows; the header is patched at the end
jsonl      one object a line: ``{"id": ..., "text": ..., "embedding": [...]}``
parquet    Arrow record batches while the job runs; turned into row groups at the end,
           because a Parquet file without its footer cannot be continued
=========  ==========================================================================
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from runtime_py.errors import ArtifactUnsupported, VoleryError
from toolchain.embedding.readers import Record
from toolchain.embedding.settings import OutputFormat, Settings

Vectors = npt.NDArray[np.float32]
NPY_HEADER_BYTES = 128
ROW_GROUP_ROWS = 16_384


class RowWriter(Protocol):
    """Appends rows to a partial file.

    A writer opened with ``keep_bytes`` continues after that many bytes of what is there
    and drops the rest; with 0 it begins an empty file.
    """

    def append(self, records: Sequence[Record], vectors: Vectors) -> None:
        """Add one row for each record; ``vectors`` is f32 [len(records), dimensions]."""
        ...

    def sync(self) -> int:
        """Make everything appended durable; returns the partial file's length in bytes."""
        ...

    def finish(self, rows: int, target: Path) -> None:
        """Complete the output of ``rows`` rows and move it to ``target`` in one rename."""
        ...

    def close(self) -> None: ...


def writer_for(settings: Settings, partial: Path, keep_bytes: int) -> RowWriter:
    """The writer of the settings' output format.

    Raises:
        VoleryError: the file cannot be written.
        ArtifactUnsupported: Parquet without pyarrow.
    """
    kinds: dict[OutputFormat, type[_Writer]] = {
        OutputFormat.NPY: NpyWriter,
        OutputFormat.JSONL: JsonlWriter,
        OutputFormat.PARQUET: ParquetWriter,
    }
    try:
        return kinds[settings.output_format](settings, partial, keep_bytes)
    except OSError as e:
        raise VoleryError(f"cannot write {partial}: {e.strerror}") from None


class _Writer:
    def __init__(self, settings: Settings, partial: Path, keep_bytes: int) -> None:
        self._settings, self._partial = settings, partial
        self._file = partial.open("r+b" if keep_bytes else "w+b", buffering=0)
        self._file.truncate(keep_bytes)
        self._length = self._file.seek(keep_bytes)

    def _encode(self, records: Sequence[Record], vectors: Vectors) -> bytes | memoryview:
        """The bytes of these rows in the partial file."""
        raise NotImplementedError

    def _cast(self, vectors: Vectors) -> npt.NDArray[Any]:
        return np.ascontiguousarray(vectors, dtype=np.dtype(str(self._settings.dtype)))

    def append(self, records: Sequence[Record], vectors: Vectors) -> None:
        self._write(self._encode(records, vectors))

    def _write(self, data: bytes | memoryview) -> None:
        """All of ``data`` or, when the disk refuses, none of it."""
        left = memoryview(data).cast("B")
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as e:
            self._file.truncate(self._length)
            self._file.seek(self._length)
            raise VoleryError(
                f"cannot write {self._partial}: {e.strerror}; the rows before are kept"
            ) from None
        self._length = self._file.tell()

    def sync(self) -> int:
        os.fsync(self._file.fileno())
        return self._length

    def finish(self, rows: int, target: Path) -> None:
        self.sync()
        self._file.close()
        self._partial.replace(target)

    def close(self) -> None:
        self._file.close()


class NpyWriter(_Writer):
    """A NumPy array [rows, dimensions]; format version 1.0 of numpy.lib.format."""

    def __init__(self, settings: Settings, partial: Path, keep_bytes: int) -> None:
        super().__init__(settings, partial, keep_bytes)
        if not keep_bytes:
            self._write(self._header(0))

    def _header(self, rows: int) -> bytes:
        descr = np.dtype(str(self._settings.dtype)).newbyteorder("<").str
        shape = (rows, self._settings.dimensions)
        fields = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}"
        body = fields.ljust(NPY_HEADER_BYTES - 11) + "\n"
        return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body.encode("ascii")

    def _encode(self, records: Sequence[Record], vectors: Vectors) -> bytes | memoryview:
        cast = self._cast(vectors)
        return cast.astype(cast.dtype.newbyteorder("<"), copy=False).tobytes()

    def finish(self, rows: int, target: Path) -> None:
        self._file.seek(0)
        self._file.write(self._header(rows))
        super().finish(rows, target)


class JsonlWriter(_Writer):
    """One JSON object a line, numbers as the shortest decimals that read back the same."""

    def _encode(self, records: Sequence[Record], vectors: Vectors) -> bytes | memoryview:
        out = []
        for record, vector in zip(records, self._cast(vectors), strict=True):
            head: dict[str, Any] = {"id": record.id}
            if self._settings.keep_text:
                head["text"] = record.text
            start = json.dumps(head, ensure_ascii=False)[:-1]
            out.append(f'{start}, "embedding": [{", ".join(map(str, vector))}]}}\n')
        return "".join(out).encode()


class ParquetWriter(_Writer):
    """Columns ``id``, ``text`` and ``embedding`` (a fixed-size list), zstd-compressed."""

    def __init__(self, settings: Settings, partial: Path, keep_bytes: int) -> None:
        pa = _pyarrow()
        value = pa.float16() if settings.dtype == "float16" else pa.float32()
        columns = [("id", pa.string() if settings.id_field else pa.int64())]
        if settings.keep_text:
            columns.append(("text", pa.string()))
        columns.append(("embedding", pa.list_(value, settings.dimensions)))
        self._schema = pa.schema(columns)
        super().__init__(settings, partial, keep_bytes)

    def _encode(self, records: Sequence[Record], vectors: Vectors) -> bytes | memoryview:
        pa = _pyarrow()
        cast = self._cast(vectors)
        flat = pa.array(cast.reshape(-1))
        columns = [pa.array([r.id for r in records], self._schema.field("id").type)]
        if self._settings.keep_text:
            columns.append(pa.array([r.text for r in records], pa.string()))
        columns.append(pa.FixedSizeListArray.from_arrays(flat, cast.shape[1]))
        return memoryview(pa.record_batch(columns, schema=self._schema).serialize())

    def finish(self, rows: int, target: Path) -> None:
        import pyarrow.parquet as pq

        self.sync()
        table = self._partial.with_name(self._partial.name + ".parquet")
        with pq.ParquetWriter(table, self._schema, compression="zstd") as out:
            for batches in self._groups():
                out.write_table(_pyarrow().Table.from_batches(batches, self._schema))
        with table.open("rb+") as f:
            os.fsync(f.fileno())
        self._file.close()
        table.replace(target)
        self._partial.unlink()

    def _groups(self) -> Iterator[list[Any]]:
        """The batches of the partial file, gathered into row groups."""
        pa = _pyarrow()
        group: list[Any] = []
        end = self._partial.stat().st_size
        with pa.OSFile(str(self._partial), "rb") as source:
            while source.tell() < end:
                group.append(pa.ipc.read_record_batch(pa.ipc.read_message(source), self._schema))
                if sum(b.num_rows for b in group) >= ROW_GROUP_ROWS:
                    yield group
                    group = []
        if group:
            yield group


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        raise ArtifactUnsupported(
            "Parquet output needs pyarrow, which is not installed; "
            "pip install 'volery[parquet]', or write .npy or .jsonl"
        ) from None
    return pyarrow
