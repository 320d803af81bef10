"""A PyTorch user: a trained network in, the same logits out, and back into PyTorch."""

import numpy as np
import torch

from symbnn import io, models

network = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
torch.save({"epoch": 3, "state_dict": network.state_dict()}, "weights.pth")

model = models.mlp((6,), 3, hidden=(5,))
params = io.from_torch(model, "weights.pth")
x = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
np.testing.assert_allclose(model.apply(params, x), network(torch.tensor(x)).detach(), atol=1e-5)
