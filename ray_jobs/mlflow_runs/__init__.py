"""MLflow as a projection of the ledger: its store, its runs, and the thread that writes them."""
