"""`par sweep`, and the script ray_jobs/sweep.py: begin a sweep, or go on with one, as `par resume` does."""

import os
from inspect import Parameter, Signature, signature
from typing import Annotated, Any

import typer

from par.errors import ConfigError
from par.ledger.records import Computing
from ray_jobs import options as o
from ray_jobs.console import refusing
from ray_jobs.driver.resolve import (
    Totals,
    begin,
    new_sweep,
    require_mlflow,
    require_secret,
    resumed_sweep,
    storage_of,
    without_password,
)
from ray_jobs.optuna_studies.warm_start import warm_points

OF_A_BEGINNING = {"name", "resume", "warm_start"}
"""Options of `par sweep` that say how a sweep begins."""


def sweep(
    space: o.Space = None,
    name: Annotated[str | None, typer.Option(help="Name of the sweep; the space's name by default.")] = None,
    resume: Annotated[str | None, typer.Option(metavar="NAME", help="Go on with this sweep; repeats no seed.")] = None,
    dry_run: o.DryRun = False,
    warm_start: o.WarmStart = None,
    storage: o.Storage = None,
    tracking_uri: o.TrackingUri = None,
    address: o.Address = None,
    max_concurrent: o.MaxConcurrent = None,
    cpus_per_worker: o.CpusPerWorker = None,
    gpus_per_worker: o.GpusPerWorker = None,
    failed: o.Failed = False,
    kinds: o.Kinds = None,
    configurations: o.Configurations = None,
    seeds: o.Seeds = None,
    break_lease: o.BreakLease = None,
    device_hours: o.DeviceHours = None,
    max_failed_share: o.MaxFailedShare = None,
    hang_after: o.HangAfter = None,
    grace: o.Grace = None,
) -> None:
    """Sweep looped models over configurations and seeds: train, evaluate, compare.

    Results lie in STORAGE/NAME and in MLflow. A sweep that was interrupted goes on with --resume NAME: finished seeds
    stay as they are, interrupted ones continue from their last checkpoint. Seeds that failed too often wait for
    --failed. What a trial takes, how many run at once, the limits and MLflow's address are taken up again, unless a
    resume says otherwise. --configurations, --seeds and a --space with further backbones make a sweep larger; they are
    totals. A new search learns from an older sweep with --warm-start sweep:NAME.

    SIGTERM, SIGINT and `ray job stop` have the trials save and leave within --grace; a second signal ends at once.

    Exit code: 0 when every seed has a result, 1 when some have none yet, 2 for bad input, 143 or 130 after a signal.
    """
    with refusing():
        home = storage_of(storage, tracking_uri, new=resume is None)
        totals = Totals(configurations=configurations, seeds=seeds)
        if resume is None:
            chosen, ledger = new_sweep(space, name, home, totals, dry_run=dry_run), None
            points = {} if warm_start is None else warm_points(warm_start, chosen, home)
        elif warm_start is not None:
            raise ConfigError(
                f"--warm-start {warm_start} is for a new sweep, and {resume} keeps what it began with: drop the option"
            )
        elif name not in (None, resume):
            raise ConfigError(f"--resume {resume} goes on under its own name: drop --name {name}")
        else:
            points = {}
            chosen, ledger = resumed_sweep(resume, home, space, totals, dry_run=dry_run, break_lease=break_lease)
        chosen_kinds = o.kinds_of(failed=failed, kinds=kinds)
        os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
        from ray_jobs.driver.drive import Options, drive, show_plan

        computing = Computing(
            max_concurrent=max_concurrent, cpus_per_worker=cpus_per_worker, gpus_per_worker=gpus_per_worker,
            max_failed_share=max_failed_share, hang_after_s=hang_after, grace_s=grace, tracking_uri=tracking_uri,
        ).over(ledger.computing() if ledger else Computing())  # fmt: skip
        require_mlflow(home, computing.tracking_uri)
        require_secret(computing.tracking_uri)
        options = Options(
            address=address, storage=home, kinds=chosen_kinds, device_hours=device_hours, break_lease=break_lease,
            kept=without_password(computing), **computing.to_dict(),
        )  # fmt: skip
        if dry_run:
            show_plan(chosen, ledger, options)
            return
        code = drive(chosen, ledger, lambda plan: begin(chosen, name, home, plan=plan, **points), options)
    if code:
        raise typer.Exit(code)


def resume(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the sweep; `par status` lists them.")],
    space: o.Grown = None,
    **options: Any,
) -> None:
    """Go on with a sweep that was interrupted, or make it larger.

    Finished seeds stay as they are, byte for byte; interrupted ones continue from their last checkpoint. Seeds that
    were given up wait for --failed. What a trial takes, how many run at once, the limits and MLflow's address are those
    that the sweep had, where nothing else is said here. Totals are totals: --configurations 40 means 40 however often
    it is said.

    Exit code: 0 when every seed has a result, 1 when some have none yet, 2 for bad input, 143 or 130 after a signal.
    """
    sweep(resume=name, space=space, **options)


def _signature() -> Signature:
    """What typer reads the options from: those of `par sweep`, where ``resume`` says nothing itself."""
    own = {name: part for name, part in signature(resume).parameters.items() if part.kind != Parameter.VAR_KEYWORD}
    taken = {name: part for name, part in signature(sweep).parameters.items() if name not in {*own, *OF_A_BEGINNING}}
    return Signature([*own.values(), *taken.values()])


vars(resume)["__signature__"] = _signature()
