"""Settings for all tests: one thread (more only wait for each other on tiny models), no network, no deadlines."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("clearformer", deadline=None, max_examples=40, derandomize=True)
hypothesis.settings.load_profile("clearformer")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
