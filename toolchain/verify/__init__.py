"""Checks what was made: accuracy against the f32 graph, and artifacts on disk."""
