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
    dry_run: o.DryRun = False,
    device_hours: o.DeviceHours = None,
) -> None:
    """Go on with a sweep that was interrupted, or make it larger.

    Finished seeds stay as they are, byte for byte; interrupted ones continue from their last checkpoint. Seeds that
    were given up wait for --failed. Totals are totals: --configurations 40 means 40 however often it is said.

    Exit code: 0 when every seed has a result, 1 when some have none yet, 2 for bad input, 143 or 130 after a signal.
    """
    sweep(
        resume=name, failed=failed, kinds=kinds, configurations=configurations, seeds=seeds, space=space,
        break_lease=break_lease, storage=storage, tracking_uri=tracking_uri, address=address,
        max_concurrent=max_concurrent, dry_run=dry_run, device_hours=device_hours,
    )  # fmt: skip
