"""Pruning looks at the posteriors of the compact posterior: makes them alike, or borrows them."""

from configs import STUDIES


def test_pruning_looks_at_the_posteriors_of_table_one():
    """The same data, network, sampler and seed under the same name."""
    for name, (_, config) in STUDIES["pruning"].configs.items():
        other = STUDIES["compact_posterior"].configs[name][1]
        for part in ("data", "model", "inference", "ensemble", "variational", "compact", "seed"):
            assert getattr(config, part) == getattr(other, part)
