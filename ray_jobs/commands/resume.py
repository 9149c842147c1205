"""`par resume`: go on with a sweep."""

from typing import Annotated

import typer

from ray_jobs import options as o
from ray_jobs.sweep import sweep


def resume(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the sweep; `par status` lists them.")],
    failed: o.Failed = False,
    kinds: o.Kinds = None,
    configurations: o.Configurations = None,
    seeds: o.Seeds = None,
    space: o.Grown = None,
    break_lease: o.BreakLease = None,
    storage: o.Storage = None,
    tracking_uri: o.TrackingUri = None,
    address: o.Address = None,
    max_concurrent: o.MaxConcurrent = None,
    cpus_per_worker: o.CpusPerWorker = None,
    gpus_per_worker: o.GpusPerWorker = None,
    dry_run: o.DryRun = False,
    device_hours: o.DeviceHours = None,
    max_failed_share: o.MaxFailedShare = None,
    hang_after: o.HangAfter = None,
    grace: o.Grace = None,
) -> None:
    """Go on with a sweep that was interrupted, or make it larger.

    Finished seeds stay as they are, byte for byte; interrupted ones continue from their last checkpoint. Seeds that
    were given up wait for --failed. What a trial takes, how many run at once, the limits and MLflow's address are those
    that the sweep had, where nothing else is said here. Totals are totals: --configurations 40 means 40 however often
    it is said.

    Exit code: 0 when every seed has a result, 1 when some have none yet, 2 for bad input, 143 or 130 after a signal.
    """
    sweep(
        resume=name, failed=failed, kinds=kinds, configurations=configurations, seeds=seeds, space=space,
        break_lease=break_lease, storage=storage, tracking_uri=tracking_uri, address=address,
        max_concurrent=max_concurrent, cpus_per_worker=cpus_per_worker, gpus_per_worker=gpus_per_worker,
        dry_run=dry_run, device_hours=device_hours, max_failed_share=max_failed_share, hang_after=hang_after,
        grace=grace,
    )  # fmt: skip
