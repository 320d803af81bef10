"""The page of the evidence: what must hold and does not is said first."""

import pytest

from tests.evidence import Check
from tests.evidence.__main__ import main, page

HOLDS = Check("HMC: p-value", "0.4", ">= 0.01", True)
MISSED = Check("NUTS: p-value", "0.001", ">= 0.01", False)


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        ([HOLDS], "1 of 1 checks hold."),
        ([HOLDS, MISSED], "1 of 2 checks hold; missed are\n\n- NUTS: p-value: 0.001, wanted >= 0.01"),
    ],
)
def test_the_page_says_what_holds(checks, expected):
    text = page(
        [{"title": "A test", "text": "Words.", "checks": checks, "minutes": 3.2, "commit": "1234abc"}]
    )
    assert expected in text
    assert "## A test" in text
    assert "Measured at 1234abc in 3 minutes" in text
    assert text.count("**missed**") == len(checks) - 1


def test_an_unknown_part_is_named(capsys):
    assert main(["geweky"]) == 2
    assert "no evidence 'geweky'; known: posteriordb, geweke, calibration, exact" in capsys.readouterr().err
