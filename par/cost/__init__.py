"""What a run takes: entries, FLOPs and bytes. Loads without torch."""
