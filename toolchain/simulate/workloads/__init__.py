"""Workloads: what arrives, and when. Everything is drawn from one seed."""

from toolchain.simulate.workloads.base import OpenWorkload, Workload

__all__ = ["OpenWorkload", "Workload"]
