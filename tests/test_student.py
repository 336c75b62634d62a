"""Quantiles of Student's t against SciPy's, and what is refused."""

import pytest
from scipy.special import stdtrit

from kernel_dvfs.student import t_quantile


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 29, 200, 2.5])
@pytest.mark.parametrize("probability", [0.5, 0.6, 0.975, 0.9995, 1 - 1e-6])
def test_the_quantile_is_scipys(freedom, probability):
    assert t_quantile(freedom, probability) == pytest.approx(float(stdtrit(freedom, probability)), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("freedom", "probability"), [(0, 0.9), (3, 0.4), (3, 1.0)])
def test_what_it_cannot_say_is_refused(freedom, probability):
    with pytest.raises(ValueError, match="expected"):
        t_quantile(freedom, probability)
