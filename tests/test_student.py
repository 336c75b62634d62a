"""Quantiles of Student's t against SciPy's, and what is refused."""

import sys
from concurrent.futures import ThreadPoolExecutor

import mpmath
import pytest
from scipy.special import stdtrit

from kernel_dvfs.student import t_quantile


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 29, 200, 2.5])
@pytest.mark.parametrize("probability", [0.5, 0.6, 0.975, 0.9995, 1 - 1e-6])
def test_the_quantile_is_scipys(freedom, probability):
    assert t_quantile(freedom, probability) == pytest.approx(float(stdtrit(freedom, probability)), rel=1e-9, abs=1e-12)


@pytest.fixture
def impatient():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.slow
def test_several_threads_get_what_one_gets_to_the_last_bit_and_leave_the_working_precision(impatient):
    asked = [(freedom, 0.975) for freedom in range(2, 30)]
    one, before = [t_quantile.__wrapped__(*each) for each in asked], mpmath.mp.prec
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda each: t_quantile.__wrapped__(*each), asked * 5)) == one * 5
    assert mpmath.mp.prec == before


@pytest.mark.parametrize(("freedom", "probability"), [(0, 0.9), (3, 0.4), (3, 1.0)])
def test_what_it_cannot_say_is_refused(freedom, probability):
    with pytest.raises(ValueError, match="expected"):
        t_quantile(freedom, probability)
