"""What a bulk-embedding run was asked for; two runs with equal settings may continue each other."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import PurePath
from typing import Any

from runtime_py.errors import InvalidInput


class InputFormat(StrEnum):
    LINES = "lines"
    JSONL = "jsonl"
    CSV = "csv"
    TSV = "tsv"

    @classmethod
    def of(cls, path: PurePath) -> InputFormat:
        """The format that a file's extension means; plain lines when it means none."""
        return {
            ".jsonl": cls.JSONL,
            ".ndjson": cls.JSONL,
            ".csv": cls.CSV,
            ".tsv": cls.TSV,
        }.get(path.suffix.lower(), cls.LINES)


class OutputFormat(StrEnum):
    NPY = "npy"
    JSONL = "jsonl"
    PARQUET = "parquet"

    @classmethod
    def of(cls, path: PurePath) -> OutputFormat:
        """The format that a file's extension means.

        Raises:
            InvalidInput: an extension that means none.
        """
        known = {
            ".npy": cls.NPY,
            ".jsonl": cls.JSONL,
            ".ndjson": cls.JSONL,
            ".parquet": cls.PARQUET,
        }
        if path.suffix.lower() not in known:
            raise InvalidInput(
                f"output {path.name!r} has no known extension, expected one of "
                f"{', '.join(known)}; or name the format with --output-format"
            )
        return known[path.suffix.lower()]


class VectorType(StrEnum):
    FLOAT32 = "float32"
    FLOAT16 = "float16"


class Truncate(StrEnum):
    END = "end"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that decides the bytes of the output, but for the input itself.

    The number of threads and the batch window are not here: results do not depend on them.

    Attributes:
        artifact_sha256: of the artifact's manifest, which holds the hash of every file.
        dimensions: numbers in one stored vector (after a matryoshka cut, if any).
        field: JSONL field (dotted path) or CSV column that holds the text.
        id_field: field or column that identifies a row; None = its row number, from 0.
    """

    artifact_sha256: str
    executor: str
    dimensions: int
    input_format: InputFormat
    output_format: OutputFormat
    field: str | None = None
    id_field: str | None = None
    prompt_name: str | None = None
    dtype: VectorType = VectorType.FLOAT32
    truncate: Truncate = Truncate.END
    keep_text: bool = True

    def as_json(self) -> dict[str, Any]:
        return {k: str(v) if isinstance(v, StrEnum) else v for k, v in asdict(self).items()}
