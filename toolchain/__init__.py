"""Volery's toolchain: turns a Hugging Face model into an artifact, and tools around it."""
