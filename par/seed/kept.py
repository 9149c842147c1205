"""The model that a seed has kept: built from its recorded settings, with the weights of its last checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from torch.distributed.device_mesh import DeviceMesh

from par.config.groups import ComputeConfig
from par.config.run import RunConfig
from par.cost.memory import evaluation_prompts
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
        """What its run was evaluated on, or other depths, another c, other prompts; passes as wide as memory allows.

        Raises ConfigError for what cannot be asked.
        """
        run = self.run
        exam = replace(
            Exam.of(run, self.model, self.rendering, self.mesh),
            depths=run.tested_depths() if depths is None else tuple(sorted(set(depths))),
            step_size=run.recurrence.step_size if step_size is None else step_size,
            sequences=run.evaluation.sequences if sequences is None else sequences,
            split=split,
            stretch=stretch,
        )
        longest = {"evaluation": run.evaluation.model_copy(update={"depths": exam.depths})}
        recurrence = {"recurrence": run.recurrence.model_copy(update={"step_size": exam.step_size})}
        return replace(exam, batch_size=evaluation_prompts(run.model_copy(update=longest | recurrence)))
