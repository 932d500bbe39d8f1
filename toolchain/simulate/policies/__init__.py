"""Every policy that the simulator knows: Volery's own, and models of other systems.

The models are ours, written after what each system documents; their files say what. Where a
system leaves a limit to its operator, `LaneSetup` chooses one that suits the device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from runtime_py.batching import BatchingCore, LaneKind
from toolchain.simulate.policies.bentoml import BentoML
from toolchain.simulate.policies.exllamav2 import ExLlamaV2
from toolchain.simulate.policies.litserve import LitServe
from toolchain.simulate.policies.moore_hodgson import MooreHodgson
from toolchain.simulate.policies.mosec import Mosec
from toolchain.simulate.policies.no_batching import NoBatching
from toolchain.simulate.policies.orca import Orca
from toolchain.simulate.policies.setup import LaneSetup, Setup
from toolchain.simulate.policies.sglang import SGLang
from toolchain.simulate.policies.shared import SharedDevice
from toolchain.simulate.policies.tensorrt_llm import CapacityPolicy, TensorRTLLM
from toolchain.simulate.policies.text_embeddings_inference import TextEmbeddingsInference
from toolchain.simulate.policies.triton import DynamicBatching, QueuePolicy, Triton
from toolchain.simulate.policies.vllm import VLLM
from toolchain.simulate.simulation import Policy

__all__ = ["POLICIES", "VOLERY", "LaneSetup", "PolicyInfo", "Setup", "make_policy", "suited"]

_DELAY_NS = 5_000_000
VOLERY = "volery"


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    """A policy by name.

    Attributes:
        title: what it models.
        kind: of the lanes that it serves, None = both.
        make: a fresh one.
        pads: the system it models hands padded batches to its model in the usual set-up;
            it is simulated like that only on request.
        is_bound: no system, but a limit to what a policy can reach; runs only by name.
    """

    title: str
    kind: LaneKind | None
    make: Callable[[Setup], Policy]
    pads: bool = False
    is_bound: bool = False


def volery(setup: Setup) -> BatchingCore:
    """The production core with its defaults: requests tell it what they call in time."""
    return BatchingCore([lane.spec for lane in setup.lanes], setup.device)


def _triton(setup: Setup) -> Policy:
    return Triton(setup, DynamicBatching(setup.lanes[0].max_batch))


def _triton_delay(setup: Setup) -> Policy:
    size = setup.lanes[0].max_batch
    preferred = [n for n in (8, 16, 32, 64) if n <= size]
    return Triton(setup, DynamicBatching(size, preferred, _DELAY_NS))


def _triton_queue(setup: Setup) -> Policy:
    lane = setup.lanes[0]
    latency = QueuePolicy(timeout_ns=int(lane.slo.latency_ms * 1e6))
    return Triton(
        setup,
        DynamicBatching(lane.max_batch, priority_levels=2, policies=(latency, QueuePolicy())),
    )


def _litserve(setup: Setup) -> Policy:
    size = setup.lanes[0].max_batch
    return LitServe(setup, max_batch_size=size, batch_timeout_ns=_DELAY_NS)


def _mosec(setup: Setup) -> Policy:
    return Mosec(setup, max_batch_size=setup.lanes[0].max_batch, max_wait_ns=_DELAY_NS)


def _bentoml(setup: Setup) -> Policy:
    lane = setup.lanes[0]
    limit_ns = int(lane.slo.latency_ms * 1e6)
    return BentoML(setup, max_batch_size=lane.max_batch, max_latency_ns=limit_ns)


def _tei(setup: Setup) -> Policy:
    return TextEmbeddingsInference(setup, max_batch_tokens=setup.lanes[0].batch_tokens)


def _orca(setup: Setup) -> Policy:
    return Orca(setup, max_num_seqs=setup.lanes[0].spec.max_seqs)


def _vllm(setup: Setup) -> Policy:
    lane = setup.lanes[0]
    seqs = lane.spec.max_seqs
    return VLLM(setup, max_num_batched_tokens=lane.chunk_tokens, max_num_seqs=seqs)


def _sglang(setup: Setup) -> Policy:
    lane = setup.lanes[0]
    seqs = lane.spec.max_seqs
    return SGLang(setup, chunked_prefill_size=lane.chunk_tokens, max_running_requests=seqs)


def _tensorrt_llm(capacity: CapacityPolicy) -> Callable[[Setup], Policy]:
    def make(setup: Setup) -> Policy:
        lane = setup.lanes[0]
        return TensorRTLLM(
            setup,
            capacity=capacity,
            max_num_tokens=lane.chunk_tokens,
            max_batch_size=lane.spec.max_seqs,
        )

    return make


def _exllamav2(setup: Setup) -> Policy:
    lane = setup.lanes[0]
    seqs = lane.spec.max_seqs
    return ExLlamaV2(setup, max_chunk_size=lane.chunk_tokens, max_batch_size=seqs)


def _side_by_side(encoder: str, decoder: str) -> Callable[[Setup], Policy]:
    def make(setup: Setup) -> Policy:
        kinds = {LaneKind.ENCODER: encoder, LaneKind.DECODER: decoder}
        return SharedDevice({k: POLICIES[n].make(setup.only(k)) for k, n in kinds.items()})

    return make


_E, _D = LaneKind.ENCODER, LaneKind.DECODER
POLICIES: dict[str, PolicyInfo] = {
    VOLERY: PolicyInfo("Volery", None, volery),
    "no-batching": PolicyInfo("no batching", _E, lambda setup: NoBatching(setup)),
    "triton": PolicyInfo("Triton, dynamic batcher", _E, _triton, pads=True),
    "triton-delay": PolicyInfo(
        "Triton, preferred sizes and a queue delay of 5 ms", _E, _triton_delay, pads=True
    ),
    "triton-queue": PolicyInfo(
        "Triton, two priority levels and a queue timeout", _E, _triton_queue, pads=True
    ),
    "litserve": PolicyInfo("LitServe, batch timeout 5 ms", _E, _litserve, pads=True),
    "mosec": PolicyInfo("mosec, max wait 5 ms", _E, _mosec, pads=True),
    "bentoml": PolicyInfo("BentoML, adaptive batching", _E, _bentoml, pads=True),
    "tei": PolicyInfo("text-embeddings-inference", _E, _tei),
    "moore-hodgson": PolicyInfo(
        "most that can be in time", _E, lambda setup: MooreHodgson(setup), is_bound=True
    ),
    "orca": PolicyInfo("Orca", _D, _orca),
    "vllm": PolicyInfo("vLLM", _D, _vllm),
    "sglang": PolicyInfo("SGLang", _D, _sglang),
    "trtllm-no-evict": PolicyInfo(
        "TensorRT-LLM, guaranteed no evict", _D, _tensorrt_llm(CapacityPolicy.GUARANTEED_NO_EVICT)
    ),
    "trtllm-max-util": PolicyInfo(
        "TensorRT-LLM, max utilization", _D, _tensorrt_llm(CapacityPolicy.MAX_UTILIZATION)
    ),
    "exllamav2": PolicyInfo("ExLlamaV2, page reservation", _D, _exllamav2),
}
PAIRS: dict[str, PolicyInfo] = {
    f"{e}+{d}": PolicyInfo(
        f"{POLICIES[e].title} beside {POLICIES[d].title}", None, _side_by_side(e, d)
    )
    for e, d in (("triton", "vllm"), ("tei", "sglang"), ("bentoml", "trtllm-no-evict"))
}
"""Two servers on one device, for workloads of both kinds."""


def suited(setup: Setup, bounds: bool = False) -> list[str]:
    """Names of the policies that can serve these lanes, Volery first.

    Args:
        setup: the lanes.
        bounds: with those that are only bounds.
    """
    kinds = {lane.kind for lane in setup.lanes}
    if len(setup.lanes) > 1:
        return [VOLERY, *PAIRS] if len(kinds) == len(setup.lanes) else [VOLERY]
    return [
        name
        for name, info in POLICIES.items()
        if (info.kind is None or info.kind in kinds) and (bounds or not info.is_bound)
    ]


def make_policy(name: str, setup: Setup) -> Policy:
    """A fresh policy; `suited` tells the names."""
    return {**POLICIES, **PAIRS}[name].make(setup)
