"""Search spaces: what a sweep compares, read from YAML and checked. Loads without torch."""
