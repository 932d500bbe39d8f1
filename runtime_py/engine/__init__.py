"""The asyncio driver of the batching core: requests in, steps to an executor, rows out."""

from runtime_py.engine.device import Device
from runtime_py.engine.engine import Engine
from runtime_py.engine.generate import GenerateRequest
from runtime_py.engine.profile import cost_profile
from runtime_py.engine.request import EncodeRequest
from runtime_py.engine.stats import EngineStats

__all__ = ["Device", "EncodeRequest", "Engine", "EngineStats", "GenerateRequest", "cost_profile"]
