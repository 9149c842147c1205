"""Everything that knows Ray, Optuna or MLflow."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
"""Where the scripts, the search spaces and, by default, the results lie."""
