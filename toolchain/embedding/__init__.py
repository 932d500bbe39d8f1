"""Bulk embedding: texts from a file become vectors in a file, and a killed run resumes.

A job reads records (`readers`), asks a model for their vectors, appends rows to
``OUT.partial`` (`writers`) and notes at checkpoints how far that is good (`journal`).
The finished file appears under its own name in one rename.
"""

from toolchain.embedding.job import EmbedJob, JobResult, Progress
from toolchain.embedding.journal import Journal
from toolchain.embedding.readers import Record, open_records, stdin_records
from toolchain.embedding.settings import InputFormat, OutputFormat, Settings
from toolchain.embedding.writers import RowWriter, writer_for

__all__ = [
    "EmbedJob",
    "InputFormat",
    "JobResult",
    "Journal",
    "OutputFormat",
    "Progress",
    "Record",
    "RowWriter",
    "Settings",
    "open_records",
    "stdin_records",
    "writer_for",
]
