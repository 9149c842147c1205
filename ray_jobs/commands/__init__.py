"""The subcommands of `par`, a file each."""
