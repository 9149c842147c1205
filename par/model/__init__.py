"""The looped model, cut from a parent decoder."""
