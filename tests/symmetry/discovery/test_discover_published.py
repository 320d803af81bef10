"""Discovery of published networks, at full size from shapes alone and in narrow versions."""

import collections
import json
import pathlib
import re
import time

import jax
import pytest

from symbnn import models
from tests.symmetry.cases import Case, summary
from tests.symmetry.cases.base import check_elements
from tests.symmetry.discovery.processes import run

INNER, PRE = (2, 1), (5, 1)
PUBLISHED = {
    "lenet": ((28, 28, 1), {(6, 1, 0): 1, (16, 1, 0): 1, (120, 1, 0): 1, (84, 1, 0): 1}),
    "resnet18": (
        (32, 32, 3),
        {(size, *INNER): 2 for size in (64, 128, 256, 512)}
        | {(size, 4, 3): 1 for size in (64, 128, 256, 512)},
    ),
    "resnet50": (
        (224, 224, 3),
        {(64, *INNER): 7, (128, *INNER): 8, (256, *INNER): 12, (512, *INNER): 6}
        | {(256, 5, 4): 1, (512, 6, 5): 1, (1024, 8, 7): 1, (2048, 5, 4): 1},
    ),
    "wrn28_10": (
        (32, 32, 3),
        {(16, *INNER): 1}
        | {(size, *INNER): 4 for size in (160, 320, 640)}
        | {(size, *PRE): 1 for size in (160, 320, 640)},
    ),
    "vit_b16": (
        (224, 224, 3),
        {(768, 25, 25): 1, (12, 0, 0): 12, (64, 1, 1): 24, (3072, 0, 0): 12},
    ),
}


def full_size(name: str, input_shape: tuple[int, ...], **settings):
    """The spec that a model is given when it is made: discovered from shapes, nothing is initialised."""
    return models.create(name, input_shape, 10, **settings).spec


def measure(names):
    """What one process finds and needs for full-size networks; see the test below."""
    results = {}
    for name in names:
        input_shape = PUBLISHED[name][0]
        start = time.process_time()
        spec = full_size(name, input_shape)
        seconds = time.process_time() - start
        groups = collections.Counter((group.size, group.num_scales, group.num_signs) for group in spec.groups)
        unexpected = [pin for pin in spec.pins if not pin.expected]
        results[name] = {"groups": sorted(groups.items()), "unexpected": len(unexpected), "seconds": seconds}
    # VmHWM and not ru_maxrss, which a child inherits from the process that started it.
    status = pathlib.Path("/proc/self/status").read_text()
    peak = int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 2**20  # type: ignore[index]
    print(json.dumps({"results": results, "gibibytes": peak}))


def test_published_networks_from_shapes_alone():
    """In a process of their own, without the tests' shape checking: under 1 GiB."""
    module = "tests.symmetry.discovery.test_discover_published"
    measured = json.loads(run(f"from {module} import measure; measure({list(PUBLISHED)})"))
    for name, (_, expected) in PUBLISHED.items():
        found = measured["results"][name]
        assert {tuple(key): count for key, count in found["groups"]} == expected
        assert found["unexpected"] == 0
    assert measured["gibibytes"] < 1


def test_optunet_groups_vary_over_the_convolution_groups():
    spec = full_size("optunet", (28, 28, 1))
    assert summary(spec) == [(2, (), 1, 0), (3, (), 1, 0), (5, (2,), 1, 0)]


def test_attention_heads_of_the_transformer():
    spec = full_size("vit", (8, 8, 3), dimension=12, depth=2, num_heads=3, mlp_units=10)
    assert summary(spec) == sorted(
        [(12, (), 5, 5), *2 * [(3, (), 0, 0)], *4 * [(4, (3,), 1, 1)], *2 * [(10, (), 0, 0)]]
    )


NARROW = {
    "lenet": ((28, 28, 1), {}),
    "optunet": ((28, 28, 1), {}),
    "resnet20": ((8, 8, 3), {"width": 0.25}),
    "resnet20_frn": ((8, 8, 3), {"width": 0.25}),
    "resnet18": ((8, 8, 3), {"width": 0.0625}),
    "resnet50": ((8, 8, 3), {"width": 0.0625}),
    "wrn28_10": ((8, 8, 3), {"width": 0.025}),
    "vit": ((8, 8, 3), {"dimension": 12, "depth": 2, "num_heads": 3, "mlp_units": 10}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NARROW)
def test_narrow_versions_of_the_published_networks(name):
    input_shape, settings = NARROW[name]
    model = models.create(name, input_shape, 4, **settings)
    shapes = jax.tree.map(lambda leaf: leaf.shape, jax.eval_shape(model.init, jax.random.key(0)))
    check_elements(Case(model.apply, shapes, (2, *input_shape), []), num_elements=20)
