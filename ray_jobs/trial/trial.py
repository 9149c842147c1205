"""One Tune trial = one attempt at one (configuration, seed)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from ray import train, tune
from ray._private.worker import global_worker

from par.errors import FailureKind
from par.ledger.records import Attempt, SeedResult
from par.race.retry import learnt_pass
from par.seed.evaluate import Report
from par.seed.train import run_seed
from par.training.parallel import BACKENDS
from ray_jobs.provenance import source_hash
from ray_jobs.trial.attempt import attempted
from ray_jobs.trial.spec import TrialSpec
from ray_jobs.trial.stop_signal import StopSignal
from ray_jobs.trial.watchdog import watched

LEFT_IN_ORDER = (FailureKind.STOPPED, FailureKind.PREEMPTED)
"""The process is sound and may go on with another seed."""


def run_trial(config: Mapping[str, Any]) -> None:
    """Run a seed until it has a result; each try is an attempt, recorded in the ledger from its start to its end.

    One device: the trainer runs in this process. More: a Ray Train run. Both run ``supervised``. Where the
    memory of the device does not suffice, another attempt goes on from the last checkpoint with fewer prompts per
    pass, on all workers alike. Any other error leaves the seed without a result; what follows is the driver's decision.
    """
    spec = _as_learnt(TrialSpec.of_trial(config))
    while _wants_another(spec):
        spec = _as_learnt(spec)


def _as_learnt(spec: TrialSpec) -> TrialSpec:
    """The spec with the prompts per pass that earlier attempts came down to: nothing that comes out depends on it."""
    prompts = learnt_pass(spec.ledger().read_config(spec.config).attempts(spec.seed))
    compute = {**spec.settings["compute"], "micro_batch": prompts}
    return replace(spec, settings={**spec.settings, "compute": compute}) if prompts else spec


def _wants_another(spec: TrialSpec) -> bool:
    """Live once; whether the next attempt is to try with fewer prompts per pass, as memory ran out.

    An attempt that was asked to stop returns like one that is done.
    """
    folder, number = spec.folder, 0
    try:
        with attempted(
            folder, spec.run, adapts=True, log=global_worker.get_err_file_path(), driver=spec.driver,
            devices=spec.devices, asked_for=spec.asked_for,
        ) as attempt:  # fmt: skip
            number = attempt.number
            tune.report({"phase": "start", "step": 0, "attempt": attempt.number, "micro_batch": attempt.micro_batch})
            _run(replace(spec, attempt=attempt.number))
    except Exception:
        attempts = folder.ledger.read_config(spec.config).attempts(spec.seed)
        ended = next((one for one in attempts if one.number == number), Attempt())
        if ended.next_micro_batch is None and ended.failure not in LEFT_IN_ORDER:
            raise
        return ended.next_micro_batch is not None
    return False


def _run(spec: TrialSpec) -> None:
    if spec.run.compute.workers > 1:
        _run_workers(spec)
    else:
        torch.set_num_threads(max(1, int(spec.cpus_per_worker)))
        supervised(spec, lambda record: tune.report(dict(record)), StopSignal(spec))


def _run_workers(spec: TrialSpec) -> None:
    """Run the seed on several Ray Train workers; their reports become the trial's."""
    from ray.train.torch import TorchConfig, TorchTrainer
    from ray.tune.integration.ray_train import TuneReportCallback

    sessions = spec.ledger().objects.below("train")
    on_gpu = spec.gpus_per_worker > 0
    resources = {"CPU": spec.cpus_per_worker} | ({"GPU": spec.gpus_per_worker} if on_gpu else {})
    TorchTrainer(
        _worker,
        train_loop_config=spec.to_dict(),
        torch_config=TorchConfig(backend=BACKENDS["cuda" if on_gpu else "cpu"]),
        scaling_config=train.ScalingConfig(
            num_workers=spec.run.compute.workers, use_gpu=on_gpu, resources_per_worker=resources
        ),
        run_config=train.RunConfig(
            name=spec.run_name,
            storage_path=sessions.root,
            storage_filesystem=sessions.filesystem,
            callbacks=[TuneReportCallback()],
            failure_config=train.FailureConfig(max_failures=0, max_preemption_failures=0),  # the driver decides
        ),
    ).fit()


def _worker(config: Mapping[str, Any]) -> None:
    spec = TrialSpec(**config)
    torch.set_num_threads(max(1, int(spec.cpus_per_worker)))
    stop_signal = StopSignal(spec)

    def report(record: Mapping[str, Any]) -> None:
        train.report(dict(record))
        if train.get_preemption_info() is not None:  # tells all workers the same, and waits for them
            stop_signal.node_goes()

    supervised(spec, report, stop_signal)


def supervised(spec: TrialSpec, report: Report, stop_signal: StopSignal | None = None) -> SeedResult:
    """Run the seed under its driver: it stops when told to, writes only what is still its own, and must not hang."""
    signal = stop_signal or StopSignal(spec)
    with watched(spec, torch.distributed.get_rank() if torch.distributed.is_initialized() else 0) as heartbeat:
        return run_seed(
            spec.run, spec.folder, report=report, should_stop=signal.should_stop,
            check_owner=signal.check_ownership, heartbeat=heartbeat, source=source_hash(),
        )  # fmt: skip
