"""Sweep looped models over configurations and seeds.

python ray_jobs/sweep.py --space search_spaces/smoke.yaml
ray job submit -- python ray_jobs/sweep.py --space search_spaces/smoke.yaml
"""

import sys
from pathlib import Path

if __name__ == "__main__":  # a job starts this file where par is not installed
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer

from ray_jobs.commands.sweep import sweep

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")
app.command(context_settings={"help_option_names": ["-h", "--help"]})(sweep)

if __name__ == "__main__":
    app()
