"""The model that a seed has kept: built from its recorded settings, with the weights of its last checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from torch.distributed.device_mesh import DeviceMesh

from par.config.groups import ComputeConfig
from par.config.run import RunConfig
from par.evaluation.exam import Exam
from par.ledger.ledger import SeedFolder
from par.model.build import build_model, build_rendering
from par.model.looped import LoopedModel
from par.tasks.prompts import Rendering
from par.tasks.streams import Split
from par.training.checkpoint import load_weights
from par.training.parallel import data_mesh, device_of_this_worker, shard


@dataclass(frozen=True, kw_only=True)
class KeptModel:
    """A trained model in this process, on its GPU if it has one."""

    run: RunConfig
    model: LoopedModel
    rendering: Rendering
    mesh: DeviceMesh | None
    step: int
    """Optimizer steps that it was trained for."""

    @classmethod
    def open(cls, folder: SeedFolder) -> Self:
        """Load it; how it was computed in training (workers, kernel, …) is of no matter here.

        Raises LedgerError if the ledger does not have the configuration, CheckpointError if the seed kept no weights.
        """
        recorded = folder.ledger.read_config(folder.config).record.run
        run = RunConfig.model_validate({**recorded, "seed": folder.seed, "compute": ComputeConfig()})
        rendering, mesh = build_rendering(run), data_mesh(run.train.precision)
        model = build_model(run, rendering, seed=0).to(device_of_this_worker())
        shard(model, mesh, run.train.precision)
        commit = load_weights(model, folder.checkpoints)
        return cls(run=run, model=model.requires_grad_(False), rendering=rendering, mesh=mesh, step=commit.step)

    def exam(
        self,
        depths: Sequence[int] | None = None,
        *,
        step_size: int | None = None,
        sequences: int | None = None,
        split: Split = Split.TEST,
        stretch: float = 1.0,
    ) -> Exam:
        """What its run was evaluated on, or other depths, another c, other prompts; passes as wide as memory allows."""
        chosen = self.run.tested_depths() if depths is None else tuple(sorted(set(depths)))
        evaluation = {"depths": chosen} if sequences is None else {"depths": chosen, "sequences": sequences}
        recurrence = {} if step_size is None else {"step_size": step_size}
        asked = self.run.model_copy(
            update={
                "evaluation": self.run.evaluation.model_copy(update=evaluation),
                "recurrence": self.run.recurrence.model_copy(update=recurrence),
            }
        )
        whole = Exam.of(asked, self.model, self.rendering, self.mesh)
        return replace(whole, depths=chosen, split=split, stretch=stretch)
