"""One run as a value that checks itself, its dotted keys, and the backbones that it may name."""
