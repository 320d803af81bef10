"""Figures of weights: the artists hold the numbers of the samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import rankdata

from symbnn import compact, diagnostics, inference, plot, posteriors, tree
from symbnn.plot.choice import Weight, choose
from symbnn.plot.draws import states_of
from tests.plot.cases import CHAINS, DRAWS, FIT, RAW, SAMPLES, aligned

KERNEL = ("hidden/kernel", (2, 1))


def values(samples, leaf="hidden/kernel", index=(2, 1)):
    """Draws of one weight, `(chains, draws)`."""
    return np.asarray(tree.named_leaves(samples)[leaf][(slice(None), *index)]).reshape(CHAINS, DRAWS)


def drawn(**settings):
    return states_of("test", RAW, None, least_chains=0, **settings)["raw"]


def test_the_spread_counts_every_weight_once_raw_and_aligned():
    (panel,) = plot.spread(FIT, aligned(), title="HMC").axes
    histograms = panel.containers
    weights = tree.num_weights(tree.take(SAMPLES, 0))
    assert [sum(bar.get_height() for bar in bars) for bars in histograms] == [weights, weights]
    edges = [bar.get_x() for bar in histograms[0]] + [
        histograms[0][-1].get_x() + histograms[0][-1].get_width()
    ]
    medians = []
    for bars, samples in zip(histograms, (SAMPLES, aligned().samples), strict=True):
        std = tree.flat(compact.gaussian(samples).std)
        np.testing.assert_array_equal([bar.get_height() for bar in bars], np.histogram(std, edges)[0])
        medians.append(np.median(std))
    shown = [float(text.get_text().split("median ")[1]) for text in panel.get_legend().get_texts()]
    np.testing.assert_allclose(shown, medians, rtol=0.06)
    assert panel.get_title() == "HMC"


def test_a_gaussian_knows_its_spread():
    law = compact.gaussian(SAMPLES)
    assert [
        [bar.get_height() for bar in bars] for bars in plot.spread(law, aligned()).axes[0].containers
    ] == [[bar.get_height() for bar in bars] for bars in plot.spread(SAMPLES, aligned()).axes[0].containers]


def test_rank_plots_count_the_ranks_of_every_chain():
    figure = plot.rank(FIT, aligned(), which=KERNEL, bins=6)
    for panel, samples in zip(figure.axes, (SAMPLES, aligned().samples), strict=True):
        ranks = rankdata(values(samples)).reshape(CHAINS, DRAWS)
        counts = np.stack([np.histogram(each, np.linspace(0.5, 24.5, 7))[0] for each in ranks])
        heights = np.array([[bar.get_height() for bar in bars] for bars in panel.containers])
        np.testing.assert_allclose(heights, 0.9 * counts / counts.max(), atol=1e-9)
        bottoms = [[bar.get_y() for bar in bars] for bars in panel.containers]
        np.testing.assert_allclose(bottoms, np.arange(CHAINS)[:, None].repeat(6, axis=1))
        # The dotted lines are where a uniform chain would be: 8 draws in 6 bins.
        lines = [line.get_ydata()[0] for line in panel.lines]
        np.testing.assert_allclose(lines, np.arange(CHAINS) + 0.9 * (8 / 6) / counts.max())
    assert [tick.get_text() for tick in panel.get_yticklabels()] == ["0", "1", "2"]


def test_titles_have_the_rhat_of_the_weight():
    figure = plot.rank(FIT, aligned(), which=KERNEL)
    for panel, name, samples in zip(
        figure.axes, ("raw", "aligned"), (SAMPLES, aligned().samples), strict=True
    ):
        rhat = float(diagnostics.rank_rhat(jnp.asarray(values(samples))[..., None])[0])
        assert panel.get_title(loc="left") == f"hidden/kernel[2, 1]\n{name}, R-hat {rhat:.2f}"
    before, after = (float(panel.get_title(loc="left").split()[-1]) for panel in figure.axes)
    assert after < 1.3 < before


def test_traces_are_the_draws_on_one_scale():
    figure = plot.trace(FIT, aligned(), which=[KERNEL, "out"])
    assert len(figure.axes) == 4
    for panel, samples in zip(figure.axes, (SAMPLES, aligned().samples), strict=False):
        np.testing.assert_allclose([line.get_ydata() for line in panel.lines], values(samples), rtol=1e-6)
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["chain 0", "chain 1", "chain 2"]


def test_pairs_are_points_of_two_weights_coloured_by_chain():
    other = ("out", (0, 1))
    figure = plot.pairs(FIT, aligned(), which=[KERNEL, other])
    for panel, samples in zip(figure.axes, (SAMPLES, aligned().samples), strict=True):
        clouds = [line for line in panel.lines if line.get_label().startswith("chain")]
        assert len({line.get_color() for line in clouds}) == CHAINS
        np.testing.assert_allclose([line.get_xdata() for line in clouds], values(samples), rtol=1e-6)
        np.testing.assert_allclose([line.get_ydata() for line in clouds], values(samples, *other), rtol=1e-6)
    assert figure.axes[0].get_xlim() == figure.axes[1].get_xlim()
    assert [figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()] == ["hidden/kernel[2, 1]", "out[0, 1]"]
    assert len(plot.pairs(SAMPLES, which=3).axes) == 3


def test_chains_that_either_knows_hold_for_both():
    known = plot.pairs(SAMPLES, posteriors.Empirical(aligned().samples, CHAINS), which=2)
    assert sum(line.get_label().startswith("chain") for line in known.axes[0].lines) == CHAINS
    with pytest.raises(ValueError, match="raw has 3 chains and aligned has 1; give both the same"):
        plot.pairs(RAW, posteriors.Empirical(aligned().samples))


def test_chains_come_by_the_door_that_the_refusal_names():
    shown = plot.trace(posteriors.Empirical.from_chains(GROUPED), which=KERNEL)
    np.testing.assert_allclose([line.get_ydata() for line in shown.axes[0].lines], values(SAMPLES), rtol=1e-6)


def test_the_worst_weights_are_those_with_the_largest_rhat_of_every_leaf_first():
    chosen = choose(5, drawn())
    assert [weight.leaf for weight in chosen[:3]] != [chosen[0].leaf] * 3
    assert {weight.leaf for weight in chosen[:3]} == {"hidden/kernel", "hidden/bias", "out"}
    for weight in chosen[:3]:
        leaf = tree.named_leaves(SAMPLES)[weight.leaf].reshape(CHAINS, DRAWS, -1)
        rhat = diagnostics.split_rhat(leaf)
        assert np.argmax(rhat) == np.ravel_multi_index(
            weight.place, tree.named_leaves(SAMPLES)[weight.leaf].shape[1:]
        )


def test_without_chains_the_worst_weight_varies_most():
    bare = states_of("test", SAMPLES, None, least_chains=0)["raw"]
    (weight,) = choose("out", bare)
    assert weight.place == np.unravel_index(np.asarray(SAMPLES["out"]).std(0).argmax(), (4, 2))
    assert weight.rhat(bare) is None


def test_a_weight_that_never_moves_is_the_last_to_be_shown():
    still = {"a": jnp.ones((12, 1)), "b": jnp.arange(12.0)[:, None]}
    states = states_of("test", posteriors.Empirical(still, 2), None, least_chains=2)
    assert choose(1, states["raw"]) == [Weight("b", (0,))]
    # Asked for by name it is drawn all the same.
    plot.rank(posteriors.Empirical(still, 2), which="a")


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        (("hidden/kernel", (2, 1)), [Weight("hidden/kernel", (2, 1))]),
        ("hidden/kernel[2, 1]", [Weight("hidden/kernel", (2, 1))]),
        (("hidden/bias", 3), [Weight("hidden/bias", (3,))]),
        (("hidden/bias", -1), [Weight("hidden/bias", (3,))]),
        (["hidden/bias[0]", ("out", (0, 1))], [Weight("hidden/bias", (0,)), Weight("out", (0, 1))]),
    ],
)
def test_weights_are_chosen_by_leaf_and_index(which, expected):
    assert choose(which, drawn()) == expected
    assert choose(list(map(str, expected)), drawn()) == expected


GROUPED = tree.by_chain(SAMPLES, CHAINS)
BROKEN = jax.tree.map(lambda leaf: leaf.at[0].set(jnp.nan), SAMPLES)
NETWORK = tree.take(SAMPLES, slice(0, 1))


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plot.rank(SAMPLES), r"rank needs chains.*posteriors\.Empirical\.from_chains\(samples\)"),
        (lambda: plot.trace(SAMPLES), r"trace needs chains.*posteriors\.Empirical\.from_chains\(samples\)"),
        (
            lambda: plot.rank(posteriors.Empirical(SAMPLES)),
            "rank compares at least 2 chains, got 1.*from_chains",
        ),
        (
            lambda: plot.trace(posteriors.Empirical(NETWORK)),
            "trace needs at least two draws of each chain, got 1",
        ),
        (
            lambda: plot.rank(compact.gaussian(SAMPLES)),
            "got a DiagonalGaussian, a law; draw networks from it first",
        ),
        (lambda: plot.rank(inference.Fit(compact.gaussian(SAMPLES), {})), "got a DiagonalGaussian, a law"),
        (lambda: plot.rank(posteriors.Empirical(BROKEN, CHAINS)), "of raw has values that are not finite"),
        (lambda: plot.pairs(SAMPLES, BROKEN), "of aligned has values that are not finite"),
        (lambda: plot.spread(GROUPED, aligned()), r"\(3, 8, \.\.\.\): .*Empirical\.from_chains\(samples\)"),
        (lambda: plot.pairs(GROUPED), r"\(3, 8, \.\.\.\): .*Empirical\.from_chains\(samples\)"),
        (lambda: plot.rank(RAW, NETWORK), "1 samples do not divide into 3 chains"),
        (lambda: plot.rank(RAW, tree.take(SAMPLES, slice(0, 21))), r"aligned: leaf .* has shape \(3, 7"),
        (lambda: plot.rank(RAW, {"other": SAMPLES["out"]}), "aligned: missing leaves"),
        (lambda: plot.rank({}), "raw: expected networks stacked along a first axis"),
        (lambda: plot.trace(3), "raw: expected networks stacked along a first axis"),
        (lambda: plot.pairs({"a": np.zeros((0, 3), np.float32)}), "raw holds no networks"),
        (lambda: plot.rank(RAW, which="hiden/kernel"), "unknown leaf 'hiden/kernel'; did you mean"),
        (
            lambda: plot.rank(RAW, which=("out", (4, 0))),
            r"leaf 'out' has shape \(4, 2\); got the index \(4, 0\)",
        ),
        (lambda: plot.rank(RAW, which="out[1]"), r"leaf 'out' has shape \(4, 2\); got the index \(1,\)"),
        (lambda: plot.rank(RAW, which=0), "which: expected at least one weight, got 0"),
        (lambda: plot.rank(RAW, which=[]), "which: expected a number of weights, or weights such as"),
        (lambda: plot.rank(RAW, which=1.5), "which: expected a number of weights, or weights such as"),
        (lambda: plot.rank(RAW, bins=1), "bins: expected from 2 to 24"),
        (lambda: plot.pairs(SAMPLES, which="out"), "expected at least two weights to make a pair of"),
        (lambda: plot.spread(NETWORK, NETWORK), "before: a spread needs at least two networks, got 1"),
        (lambda: plot.spread(SAMPLES, {"out": SAMPLES["out"]}), "after: missing leaves"),
        (lambda: plot.spread(SAMPLES, BROKEN), "of after has values that are not finite"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_line(draw, message):
    with pytest.raises(ValueError, match=message) as refused:
        draw()
    assert "\n" not in str(refused.value)


def test_networks_that_are_all_the_same_have_no_spread_and_are_drawn():
    same = jax.tree.map(lambda leaf: jnp.repeat(leaf[:1], 4, axis=0), SAMPLES)
    (panel,) = plot.spread(same, same).axes
    assert sum(bar.get_height() for bar in panel.containers[0]) == tree.num_weights(tree.take(same, 0))


def test_other_leaves_than_real_numbers_are_left_out():
    counted = {**SAMPLES, "steps": jnp.arange(CHAINS * DRAWS), "key": jax.random.split(jax.random.key(0), 24)}
    assert {weight.leaf for weight in choose(9, states_of("test", counted, None, least_chains=0)["raw"])} == {
        "hidden/bias",
        "hidden/kernel",
        "out",
    }
