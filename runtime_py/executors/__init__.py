"""The backends: one protocol (`base`), one file or folder per backend."""
