"""Boards whose truth is known: what a power cap that costs nothing changes of them."""

import numpy as np
import pytest

from experiments.searches.clock_rig import simulated


def test_where_the_cap_is_free_a_held_board_draws_no_more_than_locked():
    costly, free = simulated("h200_sxm"), simulated("h200_sxm", is_cap_free=True)
    power_w = [board.known.energy_j / board.known.time_s for board in (costly, free)]
    at_cap = costly.known.time_s[:, 0] > 1.001 * free.known.time_s[:, 0]
    # at auto some kernels are held, and give up less of their clock; the cap itself stays
    assert at_cap.any() and not at_cap.all()
    assert power_w[1][at_cap, 0] == pytest.approx(power_w[0][at_cap, 0], rel=0.02)
    # low locked clocks are far from the cap: nothing changes there
    low = [place for place, pair in enumerate(costly.known.pairs) if place and pair[0] < 1100]
    assert low and np.array_equal(costly.known.time_s[:, low], free.known.time_s[:, low])
    assert np.array_equal(costly.known.energy_j[:, low], free.known.energy_j[:, low])
