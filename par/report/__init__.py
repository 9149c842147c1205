"""What a finished or running sweep shows, from the ledger alone."""
