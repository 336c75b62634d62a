"""The palette: any two of its colours differ for colour-blind readers too, and no figure has one of its own."""

import re
from itertools import combinations

import numpy as np
import pytest

from kernel_dvfs.report import style

# linear RGB as seen with no working cones of a kind (Machado, Oliveira and Fernandes 2009, table 1, severity 1.0)
SEEN = {
    "all cones": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
# CIE 1976: some 2.3 are just noticeable side by side; small marks apart need several times that. Steps of an order
# have their lightness as well.
LEAST_DIFFERENCE = {"SERIES": 20, "STEPS": 12, "GAIN": 12}


def linear(colour):
    shares = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ np.clip(rgb, 0, 1)
    x, y, z = (
        np.cbrt(own) if own > 0.008856 else 7.787 * own + 16 / 116 for own in xyz / np.array([0.9505, 1.0, 1.089])
    )
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("eyes", SEEN)
@pytest.mark.parametrize("palette", LEAST_DIFFERENCE)
def test_any_two_colours_of_a_palette_differ_for_everyone(eyes, palette):
    seen = {colour: lab(np.array(SEEN[eyes]) @ linear(colour)) for colour in getattr(style, palette)}
    for one, other in combinations(seen, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > LEAST_DIFFERENCE[palette], (eyes, one, other)


def test_a_red_and_a_green_that_some_cannot_tell_apart_would_not_pass():
    far, near = (
        np.linalg.norm(lab(np.array(SEEN[eyes]) @ linear("#C03030")) - lab(np.array(SEEN[eyes]) @ linear("#607820")))
        for eyes in ("all cones", "deuteranopia")
    )
    assert near < min(LEAST_DIFFERENCE.values()) < far


@pytest.mark.parametrize("colour", style.SERIES)
def test_a_series_stands_out_from_the_paper(colour):
    luminance = float(np.array([0.2126, 0.7152, 0.0722]) @ linear(colour))
    assert 1.05 / (luminance + 0.05) > 2.3


def test_no_figure_has_colours_of_its_own(root):
    library = root / "workflow"
    drawing = [path for path in library.rglob("*.py") if "plotnine" in path.read_text("utf-8")]
    assert len(drawing) > 10
    for path in drawing:
        if path.name != "style.py":
            assert not re.findall(r'"#[0-9A-Fa-f]{6}"', path.read_text("utf-8")), path
