"""Iterations of the core beside nothing but their matrix products.

Dimension letters: B prompts, P prefix tokens, Q branch tokens, T = P + Q, H width, A heads, D head width, M = B·T rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.harness import Case, Target
from benchmarks.train_step import WIDE_SETTING, deepest_step
from benchmarks.wide import WIDE, registered
from par.config.backbones import Backbone
from par.config.run import RunConfig
from par.model.context import Context
from par.model.packing import Layout
from par.model.recurrence import Iterations
from par.training.loop import Trainer

ITERATIONS = 8
"""In one call; the adapter's product with the input is made once."""


def case() -> Case:
    """Eight iterations without gradient, their norms, rotary and anchoring; there are no numbers to compare."""
    with registered(WIDE):
        run = RunConfig.from_dotted(WIDE_SETTING)
        trainer = Trainer(run)
    [micro] = trainer.batches.micro_batches(deepest_step(run))
    packed, model = micro.to(trainer.device).packed, trainer.model
    e_BTH = torch.randn(*packed.ids_BT.shape, WIDE.hidden, device=trainer.device)
    cos_BTD, sin_BTD = model.rotary(e_BTH, packed.positions_BT)
    context = Context(cos_BTD, sin_BTD, packed.layout, model.kernel)
    plan = Iterations(count=ITERATIONS, keep=(ITERATIONS,))
    bare = BareProducts.of(WIDE, len(model.recurrence.layers), packed.layout, trainer.device)

    @torch.no_grad()
    def product() -> tuple[()]:
        model.recurrence(e_BTH, context, packed.real_BT, plan)
        return ()

    @torch.no_grad()
    def reference() -> tuple[()]:
        bare.run(ITERATIONS)
        return ()

    return Case(
        name="core_iteration",
        setting=WIDE_SETTING | {"prompts": e_BTH.shape[0], "tokens per prompt": e_BTH.shape[1]},
        amount=ITERATIONS,
        unit="iterations",
        product=product,
        reference=reference,
        target=Target("≤", 1.5),
        repeats=25,
    )


Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class BareProducts:
    """Random factors of all matrix products of one iteration."""

    adapter: Pair
    projections: list[Pair]
    """Of all layers: queries, keys, values, output, gate, up, down."""
    attention: list[Pair]
    """Of all layers: scores and weighted values of the prefix, the same of the branches."""

    @classmethod
    def of(cls, backbone: Backbone, layers: int, layout: Layout, device: torch.device) -> "BareProducts":
        """Draw them for a packed batch."""
        b, B, P, T = backbone, layout.ends_BN.shape[0], layout.prefix_tokens, layout.tokens
        H, AD, KD = b.hidden, b.heads * b.head_dim, b.kv_heads * b.head_dim
        widths = [(H, AD), (H, KD), (H, KD), (AD, H), (H, b.ffn), (H, b.ffn), (b.ffn, H)]

        def linear(inner: int, outer: int) -> Pair:
            return torch.randn(B * T, inner, device=device), torch.randn(inner, outer, device=device)

        def attention(queries: int, keys: int) -> Iterator[Pair]:
            for rows, inner, columns in ((queries, b.head_dim, keys), (queries, keys, b.head_dim)):
                shapes = (rows, inner), (inner, columns)
                yield tuple(torch.randn(B * b.heads, *shape, device=device) for shape in shapes)  # pyright: ignore[reportReturnType]  # two shapes

        return cls(
            adapter=linear(H, H),
            projections=[linear(*pair) for _ in range(layers) for pair in widths],
            attention=[pair for _ in range(layers) for part in ((P, P), (T - P, T)) for pair in attention(*part)],
        )

    def run(self, iterations: int) -> None:
        """Make the products of so many iterations, and the adapter's with the input."""
        torch.mm(*self.adapter)
        for _ in range(iterations):
            for pair in (self.adapter, *self.projections):
                torch.mm(*pair)
            for pair in self.attention:
                torch.bmm(*pair)
