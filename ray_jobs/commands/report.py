"""`par report`: a sweep as one HTML file, from its ledger alone."""

from pathlib import Path
from typing import Annotated

import typer

from par.errors import ConfigError
from par.ledger.ledger import Ledger
from par.report.overview import Overview
from ray_jobs import options as o
from ray_jobs.console import bytes_text, refusing, say
from ray_jobs.driver.resolve import default_storage


def report(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The sweep.")],
    storage: o.Storage = None,
    file: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Where to write it.", show_default="STORAGE/NAME/report.html"),
    ] = None,
) -> None:
    """Write what a sweep shows as one HTML file, which can be mailed, kept, and read without a network.

    It opens with what the data cannot say. Then every seed's G; how many seeds reach which G; success against each
    searched setting; accuracy by depth, a line per seed; configurations by seeds; the search score against the
    confirmed one; drift of good and failed seeds; the numbers, each with its interval; failures, device-hours and
    provenance. Point at a mark to see which seed it is.

    Nothing but the ledger is read: no cluster, no MLflow. The sweep may be running; the page shows what is there. For a
    storage that is no folder of this machine the file is NAME-report.html here, unless --out names another.

    Exit code: 0, or 2 for a sweep that does not exist or is damaged, and for a file that cannot be written.
    """
    from par.report.page.page import write_page

    with refusing():
        ledger = Ledger.open(storage or default_storage(), name)
        beside = Path(ledger.objects.root, "report.html") if ledger.objects.is_local else Path(f"{name}-report.html")
        path, overview = file or beside, Overview.of(ledger)
        try:
            write_page(overview, ledger, path)
        except OSError as fault:
            raise ConfigError(f"--out {path}: {fault.strerror}; name a file in a folder that can be written") from None
        say(f"{path} ({bytes_text(path.stat().st_size)}): open it in a browser")
