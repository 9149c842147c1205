"""Settings that every test shares."""

import os

import torch
from hypothesis import settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch.set_num_threads(1)
settings.register_profile("par", deadline=None)
settings.load_profile("par")
