"""The `par` command: sweep, train or evaluate one seed, and all that there is to do with results."""

import typer

from ray_jobs.commands.export import export
from ray_jobs.commands.gc import gc
from ray_jobs.commands.report import report
from ray_jobs.commands.status import status
from ray_jobs.commands.sweep import resume, sweep
from ray_jobs.commands.sync import sync
from ray_jobs.commands.thresholds import thresholds
from ray_jobs.evaluate import evaluate
from ray_jobs.train import train

app = typer.Typer(
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def par() -> None:
    """Looped language models trained with Progress-Aligned Recurrence."""


for command in (sweep, resume, train, evaluate, status, report, sync, export, gc, thresholds):
    app.command()(command)

if __name__ == "__main__":
    app()
