"""Tables and sentences of the page say what the numbers say: turned round, they say the opposite."""

import dataclasses

import numpy as np
import pytest

import configs
from configs.weight_sharing.parts import Published
from experiments.weight_sharing.contenders import DETERMINISTIC, ENSEMBLE, KMEANS, TRAINED
from experiments.weight_sharing.scores import difference
from experiments.weight_sharing.stages import load_problem
from experiments.weight_sharing.tables import (
    count_table,
    main_table,
    outside_table,
    size_table,
    variant_table,
)
from experiments.weight_sharing.words import findings, introduction, spreads
from tests.sharing.shared import make

DEBUG = configs.STUDIES["weight_sharing"].configs["debug"][1]


def column(accuracy, nll, ece, size, auroc=0.9, **more):
    outside = {
        "letters": {"auroc": {"largest probability": auroc, "energy": auroc / 2}, "aupr": 0.5, "fpr85": 0.1}
    }
    values = {"accuracy": accuracy, "nll": nll, "ece": ece, "bytes": size, "total_variation": nll / 2, **more}
    return {name: np.float64(value) for name, value in values.items()} | {"outside": outside}


COUNTS = {
    "outliers": 40,
    "ellipses": 4,
    "gaussians": 6,
    "numbers": 56,
    "single_mean": 0.8,
    "single_worst": 0.7,
}
FIRST = {
    DETERMINISTIC: column(0.90, 0.40, 0.05, 8000, auroc=0.8),
    KMEANS: column(0.89, 0.50, 0.06, 1000),
    ENSEMBLE: column(0.93, 0.20, 0.01, 32000),
    TRAINED: column(0.91, 0.30, 0.02, 2000, **COUNTS),
}
SECOND = {DETERMINISTIC: column(0.88, 0.42, 0.05, 8000), TRAINED: column(0.89, 0.32, 0.02, 2000, **COUNTS)}
for each in SECOND.values():
    del each["outside"]


@pytest.fixture(scope="module")
def problem():
    published = Published(14, 2, 7, 0.85, 0.303, 0.037)
    return load_problem(dataclasses.replace(DEBUG, published=published), 0)


def test_columns_that_only_some_seeds_have_are_averaged_over_those(problem):
    table = main_table(problem, [FIRST, SECOND])
    assert table.columns == (*FIRST, "paper's 2DGBNN")
    rows = {row.name: row.cells for row in table.rows}
    assert rows["accuracy"][-2].value == pytest.approx(0.90)
    assert rows["accuracy"][-2].spread == pytest.approx(np.std([0.91, 0.89], ddof=1))
    assert rows["accuracy"][1].spread is None
    assert rows["accuracy"][-1].value == 0.85
    assert f"(1 for {KMEANS}, {ENSEMBLE})" in table.title
    rows = {row.name: row.cells for row in outside_table([FIRST, SECOND]).rows}
    assert [cell.value for cell in rows["letters: AUROC by largest probability"]] == [0.8, 0.9, 0.9, 0.9]


def test_sizes_and_counts(problem):
    rows = {row.name: [cell.value for cell in row.cells] for row in size_table(problem, make(), FIRST).rows}
    assert rows[f"file of {TRAINED}: 2,000"][1] == pytest.approx((2 * 4 * 35 + 4 * 8) / 2000)
    other = {"outliers": 10, "ellipses": 0, "gaussians": 1, "numbers": 12, "bytes": 500}
    rows = {
        row.name: [cell.value for cell in row.cells] for row in count_table(problem, FIRST, {"K": other}).rows
    }
    assert rows["as above"] == pytest.approx([40, 4, 6, 56, 2 * 1184 / 56, 2.0])
    assert rows["K"] == pytest.approx([10, 0, 1, 12, 2 * 1184 / 12, 0.5])
    assert rows["paper's 2DGBNN"][:4] == [14, 2, 7, 30]


def test_findings_follow_the_numbers(problem):
    said = " ".join(findings(problem, [FIRST, SECOND], {}, {}))
    assert "accuracy by +1.00 points, NLL by a factor of 0.76 and ECE by -0.0300" in said
    assert "accuracy +5.00 points, NLL +0.0070, ECE -0.0170; it misses the paper in NLL." in said
    assert "takes 0.50 times the bytes of 2DGBNN at -2.00 points of accuracy." in said
    assert "NLL is lower than 2DGBNN's (0.300) for: ensemble (0.200)" in said
    assert "nearest is ensemble, which averages" in said
    assert "on letters, 2DGBNN is better" in said
    turned = FIRST | {
        KMEANS: column(0.92, 0.2, 0.01, 500),
        DETERMINISTIC: column(0.95, 0.1, 0.0, 900, auroc=0.95),
    }
    said = " ".join(findings(problem, [turned], {}, {}))
    assert "accuracy by -4.00 points, NLL by a factor of 3.00" in said
    assert "for size alone it is the better choice" in said
    assert "nearest is deterministic." in said
    assert "on letters, 2DGBNN is worse" in said


def changed(gain, error):
    apart = {"accuracy": gain, "accuracy_error": error, "nll": 0.1, "nll_error": 0.02}
    return {"before": FIRST[TRAINED], "after": FIRST[TRAINED], "difference": apart}


def test_ablations_within_their_noise_are_no_differences(problem):
    changes = {"no ellipses": changed(-0.21, 0.1), "no outliers": changed(-0.19, 0.1)}
    changes["neither"] = changed(0.21, 0.1)
    said = findings(problem, [FIRST], {}, changes)
    assert "-21.00 ± 10.00 points (a loss as in the paper), NLL +0.1000 ± 0.0200 (worse)" in said[-3]
    assert "-19.00 ± 10.00 points (within the noise)" in said[-2]
    assert "points (a gain)" in said[-1]
    said = findings(problem, [FIRST, SECOND], {}, changes)
    assert "the 2 seeds has a standard deviation of 0.0141" in said[-1]
    row = variant_table(FIRST, changes).rows[1]
    assert [(cell.value, cell.spread) for cell in row.cells[6:8]] == [(-21.0, 10.0), (0.1, 0.02)]


def test_the_error_of_a_difference_is_that_of_the_examples_on_which_two_differ(problem):
    labels = np.asarray(problem.labels)
    right = np.where(np.arange(10) == labels[:, None], 0.7, 0.3 / 9)
    wrong = np.roll(right, 1, axis=1)
    judged = [{"inside": {"log_probs": np.log(probs)}} for probs in (right, right.copy())]
    same = difference(problem, *judged)
    assert all(value == 0 for value in same.values())
    judged[0]["inside"]["log_probs"][:10] = np.log(wrong[:10])
    apart = difference(problem, *judged)
    share = 10 / len(labels)
    assert apart["accuracy"] == pytest.approx(-share)
    error = np.sqrt(share * (1 - share) / (len(labels) - 1))
    assert apart["accuracy_error"] == pytest.approx(error)
    assert apart["nll"] == pytest.approx(share * np.log(0.7 * 9 / 0.3))
    assert apart["nll_error"] == pytest.approx(error * np.log(0.7 * 9 / 0.3))


def test_the_settings_nearest_to_the_papers_counts_are_named(problem):
    counts = {
        "K = 2": {"outliers": 1400, "ellipses": 2, "gaussians": 7},
        "K = 9": {"outliers": 20, "ellipses": 1, "gaussians": 9},
    }
    said = findings(problem, [FIRST], counts, {})[-1]
    assert "(14 / 2 / 7) are the settings 'K = 9': 20 / 1 / 9." in said
    counts["K = 2"]["outliers"] = 14
    assert "'K = 2': 14 / 2 / 7." in findings(problem, [FIRST], counts, {})[-1]


def test_spreads_that_stay_where_they_began_are_said_to_stay():
    said = spreads(np.full(100, 0.021), 0.02)
    assert "between 0.0210 and 0.0210; all started at 0.02, and 100 % are within a tenth" in said
    assert "hardly two-dimensional" in said
    assert "hardly" not in spreads(np.geomspace(0.001, 0.4, 100), 0.02)


def test_the_introduction_names_published_networks_and_what_is_out_of_distribution(problem):
    pretraining = dataclasses.replace(DEBUG.pretraining, published=("a.safetensors",))
    judging = dataclasses.replace(DEBUG.judging, outside=("notmnist",))
    other = dataclasses.replace(DEBUG, pretraining=pretraining, judging=judging)
    said = " ".join(introduction(dataclasses.replace(problem, config=other)))
    assert "published networks a.safetensors" in said
    assert "Out of distribution are notmnist." in said
    assert "published" not in " ".join(introduction(problem))
