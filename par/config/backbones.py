"""The backbones that a sweep may name, and how a decoder of L layers is cut. Loads without torch."""

from dataclasses import dataclass

from par.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class Backbone:
    """A decoder's shape, and where its weights come from."""

    name: str
    family: str
    """Model type in the model library: qwen2, qwen3 or llama."""
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int | None = None
    """Rows of the embedding; None for a random-init backbone, which takes the size of the task's own vocabulary."""
    tied: bool = True
    rope_theta: float = 1e6
    source: str | None = None
    """Model repository or folder of pretrained weights; None starts from random weights."""
    initializer_range: float = 0.02
    """Standard deviation of random weights."""
    embedding_std: float | None = None
    """That of the rows of an untied random embedding; None is ``initializer_range``."""
    qk_norm_gain: float = 1.0
    """Initial gain of the query and key norms of a random-init backbone of a family that has them."""

    def __post_init__(self) -> None:
        if self.tied and self.embedding_std is not None:
            spread = f"embedding_std={self.embedding_std} of backbone {self.name}"
            raise ConfigError(f"{spread} would be that of its head, too: set tied=False, or leave it at None")


def _qwen25(size: str, layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, **more: object) -> Backbone:
    shape = {"vocabulary": 151_936, "tied": True} | more
    return Backbone(
        name=f"qwen2.5-{size}", family="qwen2", layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads,
        head_dim=hidden // heads, ffn=ffn, source=f"Qwen/Qwen2.5-{size.upper()}", **shape,  # pyright: ignore[reportArgumentType]
    )  # fmt: skip


def _tiny(family: str, **more: object) -> Backbone:
    shape = {"name": f"tiny-{family}", "rope_theta": 1e4} | more
    return Backbone(family=family, layers=3, hidden=32, heads=2, kv_heads=1, head_dim=16, ffn=64, **shape)  # pyright: ignore[reportArgumentType]


BACKBONES: dict[str, Backbone] = {
    b.name: b
    for b in (
        _tiny("qwen2"),
        _tiny("qwen2", name="tiny-qwen2-untied", tied=False),
        _tiny("qwen3"),
        _tiny("llama"),
        Backbone(
            name="mini-qwen3", family="qwen3", layers=3, hidden=64, heads=2, kv_heads=2, head_dim=32, ffn=176,
            tied=False, rope_theta=1e3, initializer_range=0.07, embedding_std=1.0, qk_norm_gain=1.6,
        ),
        _qwen25("0.5b", 24, 896, 14, 2, 4864),
        _qwen25("1.5b", 28, 1536, 12, 2, 8960),
        _qwen25("3b", 36, 2048, 16, 2, 11008),
        _qwen25("7b", 28, 3584, 28, 4, 18944, vocabulary=152_064, tied=False),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Split:
    """Layers of the prelude, the shared core and the coda."""

    prelude: int
    core: int
    coda: int

    def __str__(self) -> str:
        return f"{self.prelude}/{self.core}/{self.coda}"


def split_layers(layers: int, wanted: tuple[int, int, int] | None = None) -> Split:
    """Cut ``layers`` into prelude, core and coda: thirds, the remainder to the core (24: 8/8/8, 28: 9/10/9).

    ``wanted`` overrides the rule. Raises ConfigError if a part is empty or the parts do not add up.
    """
    third = layers // 3
    parts = wanted or (third, layers - 2 * third, third)
    if min(parts) < 1 or sum(parts) != layers:
        shown = "/".join(map(str, parts))
        raise ConfigError(f"recurrence.split={shown} must be three positive numbers that add up to {layers} layers")
    return Split(*parts)
