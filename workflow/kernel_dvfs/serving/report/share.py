"""Arithmetic that several tables share: savings, and the split of a saving between knobs."""

from itertools import permutations

from kernel_dvfs.serving.system import KNOBS, SUBSETS


def saved_percent(energy: float, reference: float) -> float:
    """Percent of `reference` that is not spent."""
    return 100.0 * (1.0 - energy / reference)


def by_system(outcomes: list) -> dict:
    """{system: outcome}."""
    return {each["system"]: each for each in outcomes}


def split(energy_of: dict) -> dict:
    """{knob: saving}: each knob's mean contribution over all orders of turning them (Shapley), in energy's unit.

    energy_of: {system: energy} of all SUBSETS. The parts add up to MultiPool minus DynamoLLM.
    """
    parts = dict.fromkeys(KNOBS, 0.0)
    orders = list(permutations(KNOBS))
    for order in orders:
        turned = ()
        for knob in order:
            then = tuple(each for each in KNOBS if each in (*turned, knob))
            parts[knob] += (energy_of[SUBSETS[turned]] - energy_of[SUBSETS[then]]) / len(orders)
            turned = then
    return parts
