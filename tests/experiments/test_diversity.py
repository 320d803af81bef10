"""What the study of diversity refuses, what it tests, and what it says of its numbers."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.diversity import CONFIGS, Chain
from experiments.common import published
from experiments.diversity import exchange, figures, pairs, study, tables, words
from experiments.diversity.exchange import Judged
from experiments.diversity.results import CHAIN, ENSEMBLE, INSIDE, Orders, Results
from symbnn import data, models
from symbnn.diagnostics import Exchangeability
from tests.experiments.cases import debug_config

DEBUG = debug_config("diversity")
LAYERS, PUBLISHED = (CONFIGS[name][1] for name in ("debug_layers", "cifar10_resnet20"))
NOT_RUN = ("chain", "HMC", "Kendall", "τ", "epoch", "order")
"""Words of which a sentence about a chain or about orders through training has one."""


@pytest.mark.parametrize("between", [3, 4])
def test_orders_must_divide_the_epochs_into_several_parts(between, tmp_path):
    training = dataclasses.replace(DEBUG.training, epochs_between=between)
    with pytest.raises(ValueError, match=r"--training\.epochs-between must divide --training\.num-epochs 4"):
        study.run(dataclasses.replace(DEBUG, training=training), tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            dataclasses.replace(DEBUG, num_paired=21),
            "--num-paired must be at most --num-networks 20, got 21",
        ),
        (
            dataclasses.replace(DEBUG, chain=Chain(num_samples=9)),
            "--chain.num-samples must be at least 10, or 0 to leave the chain out, got 9",
        ),
        (
            dataclasses.replace(LAYERS, chain=Chain(num_samples=10)),
            r"running statistics of resnet20 must stay; leave it out \(--chain.num-samples 0\)",
        ),
        (
            dataclasses.replace(PUBLISHED, num_networks=3),
            "--published names 4 ResNet-20s of CIFAR-10: they need --num-networks 4, --network resnet20",
        ),
        (dataclasses.replace(PUBLISHED, network="mlp"), "they need --num-networks 4, --network resnet20"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(config, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        study.run(config, tmp_path)
    assert not (tmp_path / "stages").exists()


def layer(counts, p_value=0.9):
    return Exchangeability("kernel", np.asarray(counts), 1.0, p_value)


def made_up(tested=None, orders=None, inside=(0.2, 0.3, 0.4), outside=("negatives",)):
    """Results with the numbers that a test is about."""
    inside = np.asarray(inside)
    return Results(
        tested or {ENSEMBLE: Judged({"hidden": layer([5, 5, 5])}, None)},
        np.array([0.5, 0.7]),
        {INSIDE: inside, **dict.fromkeys(outside, inside + 0.2)},
        orders,
    )


@pytest.mark.parametrize(("p_value", "verdict"), [(0.5, "passes"), (0.01, "fails")])
def test_a_chain_is_explained_only_where_it_fails(p_value, verdict):
    tested = {
        ENSEMBLE: Judged({"hidden": layer([5, 5])}, None),
        CHAIN: Judged({"hidden": layer([10, 0], p_value)}, None),
    }
    said = words.findings(made_up(tested))
    assert f"one HMC chain: p = {p_value:.2g}, {verdict}" in said[0]
    assert any("did not visit all labels" in each for each in said) == (verdict == "fails")


@pytest.mark.parametrize(
    ("least", "expected"), [(0.2, "no two networks"), (0.001, "some pairs are close to")]
)
def test_pairs_that_collapse_are_told(least, expected):
    assert expected in words.findings(made_up(inside=(least, 0.3, 0.4)))[-1]


def test_few_pairs_have_no_correlation_and_sources_have_their_names():
    few, many = (np.linspace(0.2, 0.4, num) for num in (6, 10))
    assert "correlation" not in words.findings(made_up(inside=few))[-1]
    said = words.findings(made_up(inside=many, outside=("kmnist", "notmnist")))[-1]
    assert "by 0.500 on kmnist (correlation 1.00) and by 0.500 on notmnist (correlation 1.00)" in said


def test_layers_are_told_with_a_correction_for_their_number():
    """0.02 in one of four layers is no failure; in one of two it is, and the layer is named."""
    found = {name: layer([9, 9], 0.02 if name == "b" else 0.6) for name in "abcd"}
    pooled = exchange.pool([each.counts for each in found.values()])
    said = words.findings(made_up({ENSEMBLE: Judged(found, pooled)}))
    assert "all 4 pass. The least p-value is 0.02 (b), 0.08 when corrected for 4 tests (Holm)." in said[0]
    assert "fewer than five" not in " ".join(said)
    two = {name: found[name] for name in "ab"}
    assert "b of 2 fail" in words.findings(made_up({ENSEMBLE: Judged(two, pooled)}))[0]


def test_holm_rises_with_the_p_value_and_stays_below_one():
    """Worked by hand: 4 x 0.01; 3 x 0.02; 2 x 0.03, the same; 0.9."""
    found = {
        name: layer([5, 5], p_value) for name, p_value in zip("abcd", (0.02, 0.9, 0.01, 0.03), strict=True)
    }
    expected = {"a": 0.06, "b": 0.9, "c": 0.04, "d": 0.06}
    assert Judged(found, None).holm == pytest.approx(expected)


def test_positions_are_pooled_by_their_share_of_the_layer():
    # Of 16 units two are in every eighth; of 4 one each in the eighths 1, 3, 5 and 7.
    pooled = exchange.pool([np.eye(16, dtype=int)[3] * 6, np.array([0, 0, 0, 4])])
    np.testing.assert_array_equal(pooled.counts, [0, 6, 0, 0, 0, 0, 0, 4])
    np.testing.assert_allclose(pooled.expected, 6 / 8 + np.tile([0, 1.0], 4))
    assert pooled.p_value < exchange.LEVEL


def test_the_pooled_test_errs_as_often_as_it_says():
    generator, sizes = np.random.default_rng(0), (16, 16, 32, 64, 6)
    rounds = 60
    p_values = [
        exchange.pool([generator.multinomial(4, np.full(size, 1 / size)) for size in sizes]).p_value
        for _ in range(rounds)
    ]
    # Four standard errors of a share.
    for level in (0.1, 0.5):
        assert abs(np.mean(np.array(p_values) <= level) - level) < 4 * np.sqrt(level * (1 - level) / rounds)


def test_an_excess_that_the_pooled_test_should_notice_is_noticed():
    pooled = exchange.pool([np.full(16, 4)])
    assert pooled.statistic == 0
    needed = pooled.noticed * 64
    counts = np.full(8, (64 - needed) / 7)
    counts[0] = needed
    assert np.sum((counts - 8) ** 2 / 8) == pytest.approx(pooled.critical)


def test_four_networks_are_said_to_be_weak_and_no_layer_is_judged_by_itself():
    found = {name: layer([1, 1, 1, 1] + [0] * 12) for name in "ab"}
    results = made_up({ENSEMBLE: Judged(found, exchange.pool([each.counts for each in found.values()]))})
    said = " ".join(words.findings(results))
    assert "4 networks are weak evidence" in said
    assert "every layer" not in said
    titles = [table.title for table in tables.all_tables(results)]
    assert len(titles) == 2
    assert "over all layers" in titles[1]
    assert len(figures.diversity_panels(results).axes) == 2


@pytest.mark.parametrize(
    ("last", "verdict"), [(0.9, "orders change less"), (0.2, "orders do not change less")]
)
def test_orders_are_told_at_the_highest_and_the_lowest_rate(last, verdict):
    taus = {"hidden": np.array([[0.5, 0.7, last]])}
    said = words.findings(made_up(orders=Orders(np.array([2, 3, 4]), (2, 3), taus)))
    assert f"0.50 and {last:.2f}; {verdict} in the end" in said[-1]
    unfinished = Orders(np.array([2]), (2, 3), {"hidden": np.array([[0.5]])})
    assert not any("Kendall" in each for each in words.findings(made_up(orders=unfinished)))


def test_pairwise_information_is_that_of_two_networks():
    """Networks that are sure of different classes have ln 2, equal ones nothing."""
    sure = jnp.stack(
        [jnp.eye(3)[jnp.array([0, 1])], jnp.eye(3)[jnp.array([1, 1])], jnp.eye(3)[jnp.array([0, 1])]]
    )
    found = pairs.pairwise(sure, jnp.array([0, 0, 1]), jnp.array([1, 2, 2]))
    np.testing.assert_allclose(found, [np.log(2) / 2, 0, np.log(2) / 2], atol=1e-6)


def said_in(directory):
    text = (directory / "table.md").read_text()
    assert words.PAPER in text
    return text.replace(words.PAPER, "")


def test_published_networks_are_compared_and_nothing_else_is_said(tmp_path, monkeypatch):
    """Without chain or training; one network of another kind stands for the published ones."""
    split = data.Split(np.random.default_rng(0).random((6, 8, 8, 3), np.float32), np.arange(6) % 2)
    monkeypatch.setattr(data, "load", lambda name, **_: data.Dataset(name, split, split, 10, (8, 8, 3)))
    seeds = iter(range(4))
    monkeypatch.setattr(published, "read", lambda model, *_: model.init(jax.random.key(next(seeds))))
    table = study.run(dataclasses.replace(PUBLISHED, width=0.125), tmp_path)
    assert [row.name for row in table.rows] == [
        "test images",
        "out of distribution: fashion_mnist",
        "out of distribution: notmnist",
    ]
    said = said_in(tmp_path)
    assert "4 networks resnet20" in said
    assert "that others trained and published" in said
    assert not [word for word in NOT_RUN if word in said]
    assert {path.stem for path in (tmp_path / "stages").iterdir()} == {"information"}


@pytest.mark.slow
def test_a_network_of_many_layers_without_a_chain(tmp_path):
    study.run(LAYERS, tmp_path)
    said = said_in(tmp_path)
    assert "chain" not in said
    assert "HMC" not in said
    found = exchange.layers(models.resnet20((8, 8, 1), 10, width=0.125).spec)
    assert all(f"| {name}, " in said and f"| {name} |" in said for name in found)
