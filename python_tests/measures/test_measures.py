"""Measures of rankings on instances worked out by hand, and their properties."""

from __future__ import annotations

import numpy as np
import pytest

from fastattnerase.measures.areas import areas
from fastattnerase.measures.lasting import lasting
from fastattnerase.measures.skill import skill

NEVER = float("nan")


def test_skill_by_hand() -> None:
    """Five instances: halfway; the optimum; never, which is 1; no set flips; worse than random."""
    ranking = [0.5, 0.2, NEVER, NEVER, 0.8]
    random = [0.75, 0.6, 0.5, NEVER, 0.6]
    smallest = [0.25, 0.2, 0.25, NEVER, 0.2]
    found = skill(ranking, random, smallest)
    np.testing.assert_allclose(found.values, [0.5, 1.0, -2.0, np.nan, -0.5])
    assert found.undefined == 1
    # (.25 + .4 − .5 + 0 − .2) / (.5 + .4 + .25 + 0 + .4)
    assert found.overall == pytest.approx(-0.05 / 1.55)


def test_skill_of_both_ends() -> None:
    rng = np.random.default_rng(0)
    smallest = rng.uniform(0, 0.5, 50)
    random = smallest + rng.uniform(0.01, 0.5, 50)
    assert skill(random, random, smallest).overall == 0
    assert skill(smallest, random, smallest).overall == pytest.approx(1)
    assert (skill(random, random, smallest).values == 0).all()
    better = skill((random + smallest) / 2, random, smallest)
    np.testing.assert_allclose(better.values, 0.5)


def test_random_orders_are_averaged_with_never_as_everything() -> None:
    """Orders .5 and never are .75; the ranking .5 gains .25 of the .5 to the smallest set."""
    assert skill([0.5], [[0.5, NEVER]], [0.25]).values.tolist() == [0.5]
    # Three orders that equal the smallest set: their mean is rounded, and still nothing to gain.
    third = 1 / 3
    equal = skill([third], [[third, third, third]], [third])
    assert (equal.undefined, equal.overall) == (1, None)


def test_another_random_order_has_no_skill_on_average() -> None:
    """All orders of a random pair are equally likely: overall skill is 0 in expectation, the mean
    of the instances' skills is not: (.8, .4) gives −1 and (.4, .8) gives ½ where the set is 0."""
    pairs = np.array([[0.8, 0.4], [0.4, 0.8]])
    found = skill(pairs[:, 0], pairs[:, 1], [0.0, 0.0])
    assert found.overall == 0
    np.testing.assert_allclose(found.values, [-1.0, 0.5])


def test_skill_refuses_what_is_no_fraction() -> None:
    with pytest.raises(ValueError, match=r"random: given 1.5, needed fractions in \[0, 1\]"):
        skill([0.5], [1.5], [0.5])
    with pytest.raises(ValueError, match="given 1, 2, 1 instances, needed as many of each"):
        skill([0.5], [0.5, 0.5], [0.5])
    empty = skill([], [], [])
    assert (empty.overall, empty.undefined) == (None, 0)


def test_areas_by_hand() -> None:
    """Two items 0, 1, 1: area (½ + 1)/2 = ¾. Three items 0, 0, 0, 3: (0 + 0 + 1.5)/3 = ½."""
    found = areas([0, 1, 1, 0, 0, 0, 3], [0, 3, 7], points=7)
    np.testing.assert_allclose(found.values, [0.75, 0.5])
    assert found.area == pytest.approx(0.625)
    # At 0, 1/6, …: the first 0, 1/3, 2/3, 1, 1, 1, 1; the second 0, 0, 0, 0, 0, 1.5, 3.
    np.testing.assert_allclose(found.mean, [0, 1 / 6, 1 / 3, 0.5, 0.5, 1.25, 2])


def test_the_area_is_that_under_the_mean_curve() -> None:
    """On a grid that holds every place of every instance, the trapezium rule is exact."""
    rng = np.random.default_rng(1)
    lengths = [1, 2, 3, 4, 6]
    curves = [rng.normal(size=n + 1) for n in lengths]
    offsets = np.concatenate([[0], np.cumsum([n + 1 for n in lengths])])
    found = areas(np.concatenate(curves), offsets, points=13)
    middle = (found.mean[1:] + found.mean[:-1]) / 2
    assert found.area == pytest.approx(float(middle.mean()))


def test_areas_refuse_what_is_no_curve() -> None:
    for curves, offsets, points, message in (
        ([0.0, 1.0], [0, 1, 2], 3, "an instance of fewer than two values"),
        ([0.0, 1.0], [0, 3], 3, "needed 0 to 2"),
        ([0.0, NEVER], [0, 2], 3, "curves: given NaN or infinity"),
        ([0.0, 1.0], [0, 2], 1, "points: given 1, needed at least 2"),
    ):
        with pytest.raises(ValueError, match=message):
            areas(curves, offsets, points=points)
    with pytest.raises(ValueError, match=r"grid: given \[0.0, 1.5\], needed fractions in \[0, 1\]"):
        areas([0.0, 1.0], [0, 2], grid=[0, 1.5])
    assert np.isnan(areas([], [0]).area)
    assert areas([], [0], grid=[0, 0.5]).curves.shape == (0, 2)


def test_curves_on_a_grid_of_ones_own() -> None:
    """Two items 4, 2, 1 and one item 0, 8, at a tenth, a half and the end."""
    found = areas([4, 2, 1, 0, 8], [0, 3, 5], grid=[0.1, 0.5, 1])
    np.testing.assert_allclose(found.curves, [[3.6, 2, 1], [0.8, 4, 8]])
    np.testing.assert_allclose(found.mean, [2.2, 3, 4.5])


def test_lasting_changes_by_hand() -> None:
    """c_0 … c_n of instances with what is to be found: first, stays, undone."""
    cases = {
        "0111": (1, 1, False),  # changed for good by the first item
        "0110": (1, 1, False),  # the end alone gives the decision back, as the bias does
        "01011": (1, 3, True),
        "01001": (1, 4, True),  # and only nothing left changes it for good
        "01000": (1, -1, True),  # nothing does
        "0001": (3, 3, False),
        "0000": (-1, -1, False),
        "01": (1, 1, False),
        "00": (-1, -1, False),
        "0010": (2, 2, False),
    }
    changed = [bit == "1" for bits in cases for bit in bits]
    offsets = np.concatenate([[0], np.cumsum([len(bits) for bits in cases])])
    found = lasting(changed, offsets)
    assert list(zip(*(column.tolist() for column in found), strict=True)) == list(cases.values())
    with pytest.raises(ValueError, match="needed 0 to 2"):
        lasting([False, True], [0, 3])
    with pytest.raises(ValueError, match="an instance of fewer than two values"):
        lasting([False, True], [0, 1, 2])
    assert [len(column) for column in lasting([], [0])] == [0, 0, 0]


def test_lasting_changes_against_looking_at_every_prefix() -> None:
    rng = np.random.default_rng(4)
    lengths = rng.integers(1, 9, 200)
    instances = [[False, *(rng.random(n) < 0.6)] for n in lengths]
    found = lasting(np.concatenate(instances), np.concatenate([[0], np.cumsum(lengths + 1)]))
    for row, (n, changed) in enumerate(zip(lengths, instances, strict=True)):
        first = next((k for k in range(1, n + 1) if changed[k]), -1)
        stays = next((k for k in range(1, n) if all(changed[k:n])), n if changed[n] else -1)
        undone = 0 < first < n and not all(changed[first:n])
        assert (found.first[row], found.stays[row], found.undone[row]) == (first, stays, undone)
