"""Training a looped model."""
