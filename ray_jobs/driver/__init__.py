"""The process that drives a sweep: which sweep, what it would take, what runs next, and how it ends."""
