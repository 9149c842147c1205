"""Decisions of a sweep, pure and with their reasons: what runs next, what is chosen, what follows a failure."""
