"""Somebody at a terminal, with a run that they follow in a file and in a dashboard."""

import json
from pathlib import Path

import jax

from symbnn import data, density, inference, models

digits = data.load("digits", flatten=True, num_train=60)
target = density.target(models.mlp(digits.input_shape, digits.num_classes, hidden=(3,)), digits.train)
seen = []
listeners = (
    "auto",
    inference.json_lines("run.jsonl"),
    inference.scalars(lambda step, values: seen.append(values)),
)
sample = inference.hmc(num_samples=6, num_burnin=2, step_size=0.01, num_steps=3, progress=listeners)
sample(jax.random.key(0), target)
events = [json.loads(line) for line in Path("run.jsonl").read_text().splitlines()]
assert events[-1]["done"] == events[-1]["total"] == 6
assert seen
