"""Everything that knows Ray, Optuna or MLflow."""
