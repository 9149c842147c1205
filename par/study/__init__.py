"""What is compared: spaces, the ledger, the order of runs, statistics over seeds."""
