"""A backbone for benchmarks only: small enough for a CPU, its matrices in the proportions of a real one's."""

from collections.abc import Iterator
from contextlib import contextmanager

from par.config.backbones import BACKBONES, Backbone

WIDE = Backbone(
    name="bench-wide-qwen2", family="qwen2", layers=8, hidden=448, heads=7, kv_heads=1, head_dim=64, ffn=2432
)
"""Half the width of Qwen2.5-0.5B and a third of its layers; random weights."""


@contextmanager
def registered(backbone: Backbone) -> Iterator[None]:
    """Within: a run may name the backbone."""
    BACKBONES[backbone.name] = backbone
    try:
        yield
    finally:
        del BACKBONES[backbone.name]
