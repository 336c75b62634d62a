"""Refinement ends when the choice stays as it is."""

from kernel_dvfs.search.refine import settled


def test_a_choice_has_settled_when_it_stayed_for_two_rounds():
    assert not settled([1, 1]) and settled([2, 1, 1, 1]) and not settled([1, 1, 2, 1])
