"""A one-layer encoder whose every detail can be spelled differently.

Traced to ONNX in a tenth of a second, so that each spelling gets its own test.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

VOCAB, HIDDEN, HEADS, POSITIONS = 90, 24, 4, 40
HEAD_DIM = HIDDEN // HEADS

MaskFunction = Callable[[Tensor], Tensor]
"""attention_mask [B, S] -> what is added to scores [B, H, S, S]."""


def padding_bias(mask: Tensor) -> Tensor:
    return (1.0 - mask[:, None, None, :].float()) * -10000.0


def distances(mask: Tensor) -> Tensor:
    """key - query, [S, S], from nothing but the mask's shape."""
    at = torch.arange(mask.shape[1])
    return at[None, :] - at[:, None]


def eager_scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-1, -2) / math.sqrt(HEAD_DIM)


def plain_norm(layer: nn.LayerNorm, x: Tensor) -> Tensor:
    return layer(x)


@dataclass
class Spelling:
    """How the toy writes each of its parts."""

    mask: MaskFunction = padding_bias
    scores: Callable[[Tensor, Tensor], Tensor] = eager_scores
    norm: Callable[[nn.LayerNorm, Tensor], Tensor] = plain_norm
    activation: Callable[[Tensor], Tensor] = nn.functional.gelu
    rotate: Callable[[Tensor], Tensor] | None = None
    ffn: str = "mlp"
    kv_heads: int = HEADS
    learned_positions: bool = True
    extra: dict[str, object] = field(default_factory=dict)


class Toy(nn.Module):
    """Embedding, attention, feed-forward; post-norm."""

    def __init__(self, spelling: Spelling) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.spelling = spelling
        self.words = nn.Embedding(VOCAB, HIDDEN)
        self.positions = nn.Embedding(POSITIONS, HIDDEN)
        kv = spelling.kv_heads * HEAD_DIM
        self.query, self.out = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.key, self.value = nn.Linear(HIDDEN, kv), nn.Linear(HIDDEN, kv)
        gates = 2 if spelling.ffn != "mlp" else 1
        self.up, self.down = nn.Linear(HIDDEN, 36 * gates), nn.Linear(36, HIDDEN)
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        with torch.no_grad():
            for p in self.parameters():
                p.add_(torch.randn_like(p) * 0.2)
        self.eval()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        s = self.spelling
        x = self.words(input_ids)
        if s.learned_positions:
            x = x + self.positions(torch.arange(input_ids.shape[1])[None])
        x = s.norm(self.norm1, x + self.attend(x, attention_mask))
        return s.norm(self.norm2, x + self.feed(x))

    def attend(self, x: Tensor, mask: Tensor) -> Tensor:
        s = self.spelling
        batch, length = x.shape[:2]

        def heads(t: Tensor, n: int) -> Tensor:
            return t.view(batch, length, n, HEAD_DIM).transpose(1, 2)

        q, k = heads(self.query(x), HEADS), heads(self.key(x), s.kv_heads)
        v = heads(self.value(x), s.kv_heads)
        if s.rotate:
            q, k = s.rotate(q), s.rotate(k)
        if s.kv_heads != HEADS:
            groups = HEADS // s.kv_heads
            k, v = (
                t[:, :, None].expand(batch, s.kv_heads, groups, length, HEAD_DIM)
                .reshape(batch, HEADS, length, HEAD_DIM)
                for t in (k, v)
            )  # fmt: skip
        p = torch.softmax(s.scores(q, k) + s.mask(mask), dim=-1)
        return self.out((p @ v).transpose(1, 2).reshape(batch, length, HIDDEN))

    def feed(self, x: Tensor) -> Tensor:
        s = self.spelling
        y = self.up(x)
        if s.ffn == "gate-first":
            gate, up = y.chunk(2, dim=-1)
            y = s.activation(gate) * up
        elif s.ffn == "up-first":
            up, gate = y.split(36, dim=-1)
            y = up * s.activation(gate)
        else:
            y = s.activation(y)
        return self.down(y)


def export(model: nn.Module, path: Path) -> Path:
    """Trace ``model`` to ``path``."""
    ids = torch.arange(10).reshape(2, 5)
    axes = {0: "batch", 1: "length"}
    names = ("input_ids", "attention_mask", "last_hidden_state")
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (ids, torch.ones_like(ids)),
            str(path),
            input_names=list(names[:2]),
            output_names=[names[2]],
            dynamic_axes=dict.fromkeys(names, axes),
            opset_version=18,
            dynamo=False,
        )
    return path
