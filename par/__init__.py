"""Looped language models trained with Progress-Aligned Recurrence: the science, free of any cluster library."""

__version__ = "0.1.0"
