"""Bulk embedding: texts from a file become vectors in a file, and a killed run resumes.

A job reads records (`readers`), asks a model for their vectors, appends rows to
``OUT.partial`` (`writers`) and notes at checkpoints how far that is good (`journal`).
The finished file appears under its own name in one rename.
"""
