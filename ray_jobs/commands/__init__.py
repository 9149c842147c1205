"""The subcommands of `par`, a file each; resume is beside sweep."""
