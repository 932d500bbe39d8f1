"""Volery's Python runtime."""
