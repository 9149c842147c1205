"""Optuna studies: the one that proposes, the one that is exported, and what an older sweep teaches."""
