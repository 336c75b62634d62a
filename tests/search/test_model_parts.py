"""The parts of the search's model, each against its formula written out here, or against SciPy."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import approx_fprime, brentq, least_squares, linprog, minimize

from kernel_dvfs.search import fit as fitting
from kernel_dvfs.search import gpu_model, posterior
from kernel_dvfs.search import propose as proposing
from kernel_dvfs.search.candidates import Candidates, Seen
from kernel_dvfs.search.fit import Points, fit
from kernel_dvfs.search.gpu_model import gpu_model_of, predict
from kernel_dvfs.search.propose import (
    Options,
    _doubted,
    _greedy,
    draws_of,
    full_probes,
    is_small,
    matter,
    price_of_time,
    propose,
)

PAIRS = ((None, None), *((core, mem) for mem in (5000.0, 9000.0) for core in (300.0, 900.0, 1500.0, 1800.0, 2100.0)))
# (C s GHz, M s, t0 s, p, A J, B J)
KERNELS = np.array(
    [
        (4.1e-3, 0.3e-3, 2e-5, 3.2, 0.11, 0.011),
        (0.7e-3, 1.1e-3, 1e-5, 2.7, 0.05, 0.070),
        (2.3e-3, 0.9e-3, 9e-5, 3.6, 0.09, 0.043),
        (1.2e-3, 0.2e-3, 4e-4, 2.9, 0.02, 0.009),
        (3.0e-3, 1.4e-3, 3e-5, 3.0, 0.13, 0.080),
    ]
)
K, P = len(KERNELS), len(PAIRS)
TOP_MHZ = 1950.0  # where the two highest requests and auto come to
CANDIDATES = Candidates(
    targets=tuple("abcde"),
    pairs=PAIRS,
    offered=np.ones((K, P), bool),
    weight=np.array([3.0, 1.0, 2.0, 7.0, 1.5]),
    baseline=np.zeros(K, int),
    copies=np.array([1, 2, 1, 3, 1]),
)


def volts(ghz):
    return 1 + 0.35 * max(ghz - 1.1, 0) ** 2


def launch(kernel, core_mhz, mem_mhz):
    """(time s, power W) of a launch, by the docstring's formula: 40 and 55 W static, 18 W/GHz, V^2 above 1.1 GHz."""
    c, m, t0, p, a, b = kernel
    f, share = core_mhz / 1000, mem_mhz / 9000
    time_s = ((c / f) ** p + (m / share**0.96) ** p) ** (1 / p) + t0
    energy_j = a * volts(f) ** 2 + b * (1.0 if mem_mhz == 9000 else 0.9)
    return time_s, (55 if mem_mhz == 9000 else 40) + 18 * volts(f) ** 2 * f + energy_j / time_s


def seen_of(noise=0.004, recorded=True, mask=None, cap_w=np.inf, seed=5):
    """Every pair of every kernel, or those of the mask (K, P); auto measured four times. cap_w: where the governor
    lowers the core clock until it is kept."""
    rng, rows = np.random.default_rng(seed), []
    for target, kernel in enumerate(KERNELS):
        for pair, (core, mem) in enumerate(PAIRS):
            core_mhz, mem_mhz = min(core or TOP_MHZ, TOP_MHZ), mem or 9000.0
            if launch(kernel, core_mhz, mem_mhz)[1] > cap_w:
                core_mhz = brentq(lambda mhz, k=kernel, m=mem_mhz: launch(k, mhz, m)[1] - cap_w, 100, core_mhz)
            time_s, power_w = np.array(launch(kernel, core_mhz, mem_mhz)) * np.exp(noise * rng.standard_normal(2))
            if mask is None or mask[target, pair]:
                reached = (core_mhz, mem_mhz) if recorded else (np.nan, np.nan)
                rows.append((target, pair, time_s, time_s * power_w, 4 if pair == 0 else 1, *reached))
    columns = [np.array(column) for column in zip(*rows)]
    return Seen(columns[0].astype(int), columns[1].astype(int), *columns[2:])


@pytest.fixture(scope="module", params=[np.inf, 190.0], ids=["free", "capped"])
def fitted(request):
    """A fit to every pair: without a power cap, and under one that is met near the top clock and far below it."""
    return fit(CANDIDATES, seen_of(cap_w=request.param))


def worth(fitted):
    """(N, 2) weights of log time and log power of the seen points: of repeats two at most, and nothing of the power of
    a capped run near the top clock, where the voltage may be any."""
    seen = fitted.seen
    found = np.repeat(np.minimum(seen.n, 2)[:, None], 2, 1)
    capped = seen.energy_j / seen.time_s >= 0.955 * fitted.gpu.cap_w
    found[capped & (seen.core_mhz > 0.96 * TOP_MHZ), 1] = 0
    return found


def block(model, name):
    """(mean, covariance) of some of the constants before anything is fitted."""
    place = model.places[name]
    return model.mean[place], np.linalg.inv(model.precision)[place, place]


# --- what is known of a GPU before a fit ------------------------------------------------------------------------------


def test_before_a_fit_clocks_are_their_labels_and_constants_those_of_other_gpus():
    seen = seen_of(recorded=False)
    model, highest_w = gpu_model_of(CANDIDATES, seen), (seen.energy_j / seen.time_s).max()
    assert model.highest_w == pytest.approx(highest_w) and model.cap_w == np.inf
    assert model.core_ghz.tolist() == [0.3, 0.9, 1.5, 1.8, 2.1, 2.1], "auto asks for the highest"
    assert model.core_node.tolist() == [5, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
    assert model.mem_node.tolist() == [1, *[0] * 5, *[1] * 5] and model.mem_mhz.tolist() == [5000, 9000]
    assert model.auto.tolist() == [True] + [False] * 10
    assert np.flatnonzero(model.top).tolist() == [0, 5, 10]
    assert model.voltage_ghz.tolist() == [0.3, 0.9, 1.5, 1.8, 2.1]
    mean, covariance = block(model, "log_f")
    assert mean == pytest.approx(np.log([0.3, 0.9, 1.5, 1.8, 2.1, 2.1]))
    assert covariance == pytest.approx(np.diag([0.06, 0.004, 0.004, 0.004, 0.04, 0.05]) ** 2)
    assert [*block(model, "fall")[0], *block(model, "fall")[1].ravel()] == pytest.approx([0.03, 0.03**2])
    ratio, far = np.log(5 / 9), -np.log(5 / 9)
    mean, covariance = block(model, "log_b")
    assert mean == pytest.approx([ratio, 0]) and covariance == pytest.approx(np.diag([0.02 + 0.12 * far, 1e-4]) ** 2)
    mean, covariance = block(model, "log_ps")
    assert mean == pytest.approx(np.log(0.25 * highest_w) + 0.4 * np.array([ratio, 0]))
    assert covariance == pytest.approx(np.diag([0.02 + 0.6 * far, 0.02]) ** 2 + 0.5**2)
    mean, covariance = block(model, "log_k")
    assert mean == pytest.approx(np.log([0.08 * highest_w / 2.1])) and covariance == pytest.approx(0.7**2)
    mean, covariance = block(model, "log_s")
    assert mean == pytest.approx([0, 0]) and covariance == pytest.approx(np.diag([0.02 + 0.4 * far, 1e-4]) ** 2)
    mean, covariance = block(model, "log_x")
    assert mean == pytest.approx([0]) and covariance == pytest.approx(0.03**2)
    share = np.array([0.3, 0.9, 1.5, 1.8, 2.1]) / 2.1
    table = np.array(gpu_model.VOLTAGE)
    sd = np.interp(share, table[:, 0], table[:, 2])
    mean, covariance = block(model, "log_v")
    assert mean == pytest.approx(np.interp(share, table[:, 0], np.log(table[:, 1])))
    alike = np.exp(-((share[:, None] - share) ** 2) / (2 * 0.12**2))
    assert covariance == pytest.approx(np.outer(sd, sd) * alike + np.diag(0.02 * sd**2 + 1e-6))


def test_recorded_clocks_are_believed_and_leave_no_fall():
    model = gpu_model_of(CANDIDATES, seen_of())
    assert model.core_ghz == pytest.approx([0.3, 0.9, 1.5, 1.8, 1.95, 1.95])
    assert block(model, "log_f")[1] == pytest.approx(np.diag([0.003**2] * 6))
    assert [*block(model, "fall")[0], *block(model, "fall")[1].ravel()] == pytest.approx([0, 1e-8])
    assert model.voltage_ghz == pytest.approx([0.3, 0.9, 1.5, 1.8, 1.95]), "clocks nearer than 1.5 % are one"


@pytest.mark.parametrize("recorded", [True, False])
def test_a_cap_is_seen_where_clocks_fall_or_where_many_kernels_draw_alike(recorded):
    """Without recorded clocks it takes four kernels near the highest power."""
    seen = seen_of(noise=0.0005, recorded=recorded, cap_w=140.0)
    near = np.unique(seen.target[seen.energy_j / seen.time_s > 0.93 * 140.0])
    assert len(near) >= 4
    for count in (3, 4, len(near)):
        some = np.isin(seen.target, near[:count])
        cap_w = gpu_model_of(CANDIDATES, Seen(*(getattr(seen, name)[some] for name in Seen.__dataclass_fields__))).cap_w
        if recorded or count >= 4:
            assert cap_w == pytest.approx(140.0, rel=0.005 if recorded else 0.07)
        else:
            assert np.isinf(cap_w)


def test_voltage_is_interpolated_between_its_nodes_and_flat_beyond():
    model = gpu_model_of(CANDIDATES, seen_of())
    ghz, values = np.array([0.1, 0.3, 0.71, 1.5, 1.6, 1.9, 1.95, 2.4]), np.array([0.0, 0.3, 0.1, 0.7, 1.3])
    assert model.voltage_weights(ghz) @ values == pytest.approx(np.interp(ghz, model.voltage_ghz, values))


# --- the fit ----------------------------------------------------------------------------------------------------------


def constants(fitted, g):
    """{field of At: its constants} of the vector g, those that are one alone as numbers."""
    part = {name: g[place] for name, place in fitted.gpu.places.items()}
    return part | {name: part[name][0] for name in ("fall", "log_k", "log_x")}


def formula(fitted, part, theta, mem, ghz, voltage_ghz):
    """(time s, power W) at memory nodes, clocks, and the clocks that were asked for, which set the voltage."""
    c, m, t0, p, a, b = np.exp(theta).T
    v2 = np.exp(2 * np.interp(voltage_ghz, fitted.gpu.voltage_ghz, part["log_v"]))
    time_s = ((c / ghz) ** p + (m / np.exp(part["log_b"])[mem]) ** p) ** (1 / p) + t0
    of_launch = (a * v2 + b * np.exp(part["log_s"])[mem]) / time_s
    return time_s, np.exp(part["log_ps"])[mem] + np.exp(part["log_k"]) * v2 * ghz + of_launch


def predicted(fitted, theta, g):
    """(N, 2) log time and log power of the seen points, whose clocks are recorded."""
    seen, part, ghz = fitted.seen, constants(fitted, g), fitted.seen.core_mhz / 1000
    found = formula(fitted, part, theta[seen.target], fitted.gpu.mem_node[seen.pair], ghz, ghz)
    return np.log(found).T + np.outer(part["log_x"] * fitted.gpu.auto[seen.pair], [0, 1])


def measured(seen):
    return np.stack([np.log(seen.time_s), np.log(seen.energy_j / seen.time_s)], -1)


def misfit(fitted, theta, g, shared):
    """Twice the negative logarithm of the likelihood: Student's t of 6 degrees of freedom, weighted by what points are
    worth, of theta's prior and of the constants'."""
    r = (measured(fitted.seen) - shared[fitted.seen.pair] - predicted(fitted, theta, g)) / fitted.scatter
    off, moved = theta - fitted.mean, g - fitted.gpu.mean
    of_points = (7 * np.log1p(r**2 / 6) * worth(fitted)).sum()
    return of_points + np.einsum("ki,ij,kj->", off, fitted.precision, off) + moved @ fitted.gpu.precision @ moved


def test_the_models_slopes_and_values_agree_with_the_formula(fitted):
    points = Points(fitted.seen, fitted.gpu, fitted.used, None)
    slopes = gpu_model.with_slopes(fitted.theta[points.target], points.at(fitted.g))
    found = np.stack([slopes.log_time, slopes.log_power], -1)
    assert found == pytest.approx(predicted(fitted, fitted.theta, fitted.g), rel=1e-12)
    for quantity, by_at in enumerate((slopes.by_at_time, slopes.by_at_power)):
        by_g = points.by_g(by_at, len(fitted.g))
        for point in (0, 4, 17, 40):
            own = approx_fprime(fitted.g, lambda g, n=point, q=quantity: predicted(fitted, fitted.theta, g)[n, q], 1e-7)
            assert by_g[point] == pytest.approx(own, abs=2e-6)


def test_kernels_are_where_the_likelihood_with_its_prior_is_highest(fitted):
    again = fitted.without(np.zeros(len(fitted.seen.target), bool))
    assert again.used.all()

    def cost(theta):
        return misfit(again, theta.reshape(K, 6), again.g, again.shared)

    best = minimize(cost, again.theta.ravel(), method="BFGS", options={"gtol": 1e-4, "maxiter": 500})
    assert cost(again.theta) == pytest.approx(best.fun, abs=1e-3)
    assert again.theta.ravel() == pytest.approx(best.x, abs=0.02)


def test_constants_and_kernels_together_are_at_a_minimum_and_their_spread_is_its_curvature(fitted):
    points = Points(fitted.seen, fitted.gpu, fitted.used)
    args = fitted.mean, fitted.precision, fitted.scatter, None
    theta, g = fitted.theta, fitted.g
    for _ in range(4):
        theta, g, hessian, covariance = fitting._descend(points, fitted.gpu, theta, g, *args)
    shared = np.zeros((P, 2))
    flat = np.concatenate([theta.ravel(), g])

    def cost(x):
        return misfit(fitted, x[: theta.size].reshape(K, 6), x[theta.size :], shared)

    slope = approx_fprime(flat, cost, 1e-6)
    # against what a thousandth of a prior's spread would change
    spread = 1 / np.sqrt(np.concatenate([np.tile(np.diag(fitted.precision), K), np.diag(fitted.gpu.precision)]))
    assert np.abs(slope * spread).max() < 0.5
    # Gauss-Newton: J' W J with the weights of a robust likelihood, and the priors
    jacobian = np.array(
        [
            (predicted(fitted, *apart(flat + step, theta)) - predicted(fitted, *apart(flat - step, theta))).ravel()
            / 2e-6
            for step in 1e-6 * np.eye(len(flat))
        ]
    ).T
    r = (measured(fitted.seen) - predicted(fitted, theta, g)) / fitted.scatter
    weight = (7 / (6 + r**2) * worth(fitted) / fitted.scatter**2).ravel()
    full = jacobian.T @ (weight[:, None] * jacobian)
    full[: theta.size, : theta.size] += np.kron(np.eye(K), fitted.precision)
    full[theta.size :, theta.size :] += fitted.gpu.precision
    for kernel in range(K):
        own = slice(6 * kernel, 6 * kernel + 6)
        assert hessian[kernel] == pytest.approx(full[own, own], rel=1e-4, abs=1e-4 * np.abs(full[own, own]).max())
    expected = np.linalg.inv(full)[theta.size :, theta.size :]
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    assert np.abs((covariance - expected) / scale).max() < 1e-2


def test_eight_steps_from_where_a_fit_begins_come_to_its_minimum(fitted):
    points = Points(fitted.seen, fitted.gpu, fitted.used)
    args = fitted.mean, fitted.precision, fitted.scatter
    least = []
    for theta, g in ((fitted.theta, fitted.g), (fitted.mean, fitted.gpu.mean)):
        for _ in range(4):
            theta, g, *_ = fitting._descend(points, fitted.gpu, theta, g, *args, None)
        least.append(misfit(fitted, theta, g, np.zeros((P, 2))))
    assert least[0] == pytest.approx(least[1], abs=1e-6)
    for begins in (fitted.mean, fitting._start(points, fitted.gpu.mean, *args, K)):
        theta, g, *_ = fitting._descend(points, fitted.gpu, begins, fitted.gpu.mean, *args, None)
        assert misfit(fitted, theta, g, np.zeros((P, 2))) < least[0] + 1e-3


def apart(flat, theta):
    return flat[: theta.size].reshape(theta.shape), flat[theta.size :]


def test_scatter_and_what_does_not_fit_count_degrees_of_freedom(fitted):
    """Squares of residuals of at most three robust deviations, and ten points of 1 %, over points less unknowns."""
    points = Points(fitted.seen, fitted.gpu, fitted.used)
    own = np.array(
        [np.diag([0.2, 0.3, 0.9, 0.1, 0.5, 0.4]) / np.diag(fitted.precision) * (1 + k / 10) for k in range(K)]
    )
    told = np.linspace(0.1, 0.9, len(fitted.g))
    scatter, unfit = fitting._scatter(points, fitted.theta, fitted.g, own, fitted.precision, told, fitted.gpu)
    told_of = worth(fitted) > 0
    r = (measured(fitted.seen) - predicted(fitted, fitted.theta, fitted.g)) * told_of
    taken = np.array([1 - np.clip(np.diag(each @ fitted.precision), 0, 1) for each in own])
    # log_f, fall and log_b act on time
    clocks = len(fitted.gpu.core_ghz) + 1 + len(fitted.gpu.mem_mhz)
    spent = taken[:, :4].sum() + told[:clocks].sum(), taken[:, 4:].sum() + told[clocks:].sum()
    for quantity in range(2):
        size = np.abs(r[told_of[:, quantity], quantity])
        kept = np.minimum(size, 3 * 1.4826 * np.median(size))
        free = max(len(size) - spent[quantity], len(size) / 4)
        assert scatter[quantity] == pytest.approx(np.sqrt((10 * 0.01**2 + (kept**2).sum()) / (10 + free)))
    for kernel in range(K):
        mine = fitted.seen.target == kernel
        squares = ((r[mine] / scatter) ** 2).sum()
        freedom = max(told_of[mine].sum() - taken[kernel].sum(), 0)
        assert unfit[kernel] == pytest.approx(np.sqrt((4 + squares) / (4 + freedom)))


def test_what_is_shared_at_a_pair_is_the_mean_misfit_as_if_eight_more_kernels_had_none(fitted):
    told = worth(fitted) > 0
    r = (measured(fitted.seen) - predicted(fitted, fitted.theta, fitted.g)) * told
    r = np.clip(r, -3 * fitted.scatter, 3 * fitted.scatter)
    for pair in range(P):
        own = fitted.seen.pair == pair
        assert fitted.shared[pair] == pytest.approx(r[own].sum(0) / (told[own].sum(0) + 8), rel=1e-9)


def test_the_prior_of_the_kernels_is_learnt_by_ridge_regression_of_their_parameters():
    """Eight kernels' worth of what other GPUs say; slopes by the work are known within a half."""
    rng = np.random.default_rng(2)
    features = np.column_stack([np.ones(9), rng.standard_normal((9, 3))])
    relative, own = rng.standard_normal((9, 6)), np.array([np.diag(rng.uniform(0.01, 0.1, 6)) for _ in range(9)])
    old, slopes = rng.standard_normal((4, 6)), rng.standard_normal((3, 6))
    weights, precision = fitting._learn(relative, features, old, own, slopes)
    off = relative - features @ old
    covariance = (8 * np.diag(gpu_model.KERNEL_SPREAD**2) + off.T @ off + own.sum(0)) / (8 + 9)
    assert np.linalg.inv(precision) == pytest.approx(covariance)
    expected = np.vstack([gpu_model.KERNEL_MEAN, slopes])
    for unknown in range(6):
        # as least squares: a row for each kernel, and a row for each weight that is expected
        sd = np.sqrt(covariance[unknown, unknown])
        rows = np.vstack([features / sd, np.diag([1 / gpu_model.KERNEL_SPREAD[unknown], 2, 2, 2])])
        goal = rows[9:] @ expected[:, unknown]
        found = np.linalg.lstsq(rows, np.concatenate([relative[:, unknown] / sd, goal]), rcond=None)[0]
        assert weights[:, unknown] == pytest.approx(found)


def test_a_fits_own_prior_is_the_mean_of_its_kernels_relative_to_their_fastest_point(fitted):
    """And of what other GPUs say, by their variances."""
    seen = fitted.seen
    fastest = [np.flatnonzero(seen.target == k)[seen.time_s[seen.target == k].argmin()] for k in range(K)]
    time, energy = np.log(seen.time_s[fastest]), np.log(seen.energy_j[fastest])
    scale = np.stack([time + np.log(1.95), time, time, 0 * time, energy, energy], -1)
    of_kernels, of_others = K / np.diag(np.linalg.inv(fitted.precision)), gpu_model.KERNEL_SPREAD**-2.0
    mean = (of_kernels * (fitted.theta - scale).mean(0) + of_others * gpu_model.KERNEL_MEAN) / (of_kernels + of_others)
    assert fitted.weights == pytest.approx(mean[None])
    assert fitted.mean == pytest.approx(scale + mean)


def test_a_kernel_of_known_work_is_expected_where_its_bytes_and_flop_put_it():
    """DRAM time and energy go with the bytes, core time and energy of a matrix product half with its FLOP."""
    work = tuple((flop, byte) for flop, byte in ((3e12, 4e8), (0.0, 9e8), (2e12, 7e8), (0.0, 0.0), (5e12, 1e9)))
    known = replace(CANDIDATES, work=work)
    seen = seen_of()
    features, slopes = fitting._features(known, seen)
    time = np.array([seen.time_s[seen.target == kernel].min() for kernel in range(K)])
    flop, byte = np.array(work).T
    rate = np.log(np.maximum(byte, 1) / time)
    assert features[:, 0].tolist() == [1] * K
    assert features[:, 1] == pytest.approx(rate - np.median(rate))
    assert features[:, 2] == pytest.approx((flop > 0) - 0.6)
    of_products = np.log(flop[flop > 0] / time[flop > 0])
    assert features[flop > 0, 3] == pytest.approx(of_products - np.median(of_products))
    assert features[flop == 0, 3].tolist() == [0, 0]
    assert slopes.tolist() == [[0, 1, 0, 0, 0, 1], [0] * 6, [0.5, 0, 0, 0, 0.5, 0]]
    assert fitting._features(CANDIDATES, seen)[0].tolist() == [[1]] * K
    # and the prior is relative to the fastest point
    model = gpu_model_of(CANDIDATES, seen)
    scale = fitting._scales(CANDIDATES, seen, model)
    fastest = [np.flatnonzero(seen.target == k)[seen.time_s[seen.target == k].argmin()] for k in range(K)]
    energy = seen.energy_j[fastest]
    expected = [np.log(time) + np.log(1.95), np.log(time), np.log(time), 0 * time, np.log(energy), np.log(energy)]
    assert scale == pytest.approx(np.stack(expected, -1))


# --- what a fit leaves open -------------------------------------------------------------------------------------------


def correlation():
    """(P, P) of misfits by their clocks."""
    log_f = np.log([min(core or TOP_MHZ, TOP_MHZ) for core, _ in PAIRS])
    log_m = np.log([mem or 9000 for _, mem in PAIRS])
    return np.exp(-np.abs(log_f[:, None] - log_f) / 0.7 - np.abs(log_m[:, None] - log_m) / 1.4)


@pytest.mark.parametrize("cap_w", [np.inf, 190.0])
def test_the_table_is_the_model_and_the_misfit_expected_from_the_points_nearby(cap_w):
    """Gaussian processes of exponential correlation; the share that is a point's own is the most likely of six. Where
    a point's power tells nothing, its misfit is taken for none, and no power is more than 3 % above the cap."""
    mask = np.random.default_rng(1).random((K, P)) < 0.6
    mask[:, [0, 10]] = True
    one = fit(CANDIDATES, seen_of(noise=0.02, mask=mask, cap_w=cap_w))
    told = worth(one) > 0
    assert told.all() == np.isinf(cap_w)
    log_time, log_energy = posterior.tables(one)
    model = np.stack(posterior._under_the_cap(one.gpu, one.theta[None], one.g[None]), -1)[0]
    seen, smooth = one.seen, correlation()
    off = (measured(seen) - one.shared[seen.pair] - predicted(one, one.theta, one.g)) * told
    for quantity, table in enumerate((log_time[0], (log_energy - log_time)[0])):
        z = off[:, quantity] / (one.unfit[seen.target] * one.scatter[quantity])
        size = (z**2).mean()
        likely = {}
        for nugget in (0.1, 0.2, 0.4, 0.6, 0.8, 0.95):
            covariance = size * ((1 - nugget) * smooth + nugget * np.eye(P))
            likely[nugget] = sum(
                stats.multivariate_normal(np.zeros(len(at)), covariance[np.ix_(at, at)]).logpdf(z[seen.target == k])
                for k in range(K)
                for at in [seen.pair[seen.target == k]]
            )
        nugget = max(likely, key=likely.get)
        for kernel in range(K):
            mine = seen.target == kernel
            at = seen.pair[mine]
            inner = (1 - nugget) * smooth[np.ix_(at, at)] + nugget * np.eye(len(at))
            expected = (1 - nugget) * smooth[:, at] @ np.linalg.inv(inner) @ off[mine, quantity]
            plain = model[kernel, :, quantity] if np.isfinite(cap_w) else at_every_pair(one, kernel)[:, quantity]
            most = np.log(1.03 * one.gpu.cap_w) if quantity else np.inf
            expected = np.minimum(plain + one.shared[:, quantity] + expected, most)
            assert table[kernel] == pytest.approx(expected, abs=1e-9)


def at_every_pair(one, kernel):
    """(P, 2) log time and log power by formula, at the clocks that the fit has for each pair."""
    gpu, part = one.gpu, constants(one, one.g)
    f, share = np.exp(part["log_f"])[gpu.core_node], 0.0
    for _ in range(3):
        ghz = f * np.exp(-part["fall"] * gpu.top * share)
        time_s, power_w = formula(one, part, one.theta[kernel], gpu.mem_node, ghz, gpu.core_ghz[gpu.core_node])
        power_w = power_w * np.exp(part["log_x"] * gpu.auto)
        share = np.minimum(power_w, gpu.cap_w) / gpu.highest_w
    return np.stack([np.log(time_s), np.log(power_w)], -1)


@pytest.mark.parametrize("cap_w", [np.inf, 190.0])
def test_a_draw_is_the_best_fit_to_its_own_points_under_its_own_prior(cap_w):
    """Points and prior as they were drawn, drawn again here: from nine of ten draws SciPy finds 0.05 less misfit at
    most, from three of four next to none."""
    one = fit(CANDIDATES, seen_of(noise=0.02, cap_w=cap_w))
    points, number = Points(one.seen, one.gpu, one.used, one.shared), 8
    g = np.repeat(one.g[None], number, 0)
    theta = posterior._refit(one, points, g, np.random.default_rng(3))
    rng = np.random.default_rng(3)
    # as many numbers are drawn for what tells nothing, and count for nothing
    told = worth(one) > 0
    sd = one.scatter * one.unfit[points.target, None] / np.sqrt(np.where(told, worth(one), 1))
    log = points.log + rng.standard_normal((number, *points.log.shape)) * sd
    tails = rng.chisquare(4, (number, K)) / 4
    root = np.linalg.cholesky(np.linalg.inv(one.precision)).T
    mean = one.mean + rng.standard_normal((number, K, 6)) @ root / np.sqrt(tails)[..., None]

    def misfit(theta):
        """(S, K)"""
        off = (log - np.stack(predict(theta[:, points.target], posterior._by_draw(points.at(g))), -1)) / sd * told
        data = np.stack([(off[:, points.target == k] ** 2).sum((1, 2)) for k in range(K)], -1)
        return data + tails * np.einsum("ski,ij,skj->sk", theta - mean, one.precision, theta - mean)

    least = misfit(theta)
    assert (least < misfit(np.tile(one.theta, (number, 1, 1)))).mean() > 0.9
    half = np.linalg.cholesky(one.precision)
    # the exponent p is between 1 and 16
    bounds = np.tile([[-np.inf], [np.inf]], 6)
    bounds[:, 3] = 0, np.log(16)
    excess = np.empty((number, K))
    for draw, kernel in np.ndindex(number, K):
        own = points.target == kernel
        at = gpu_model.At(*(field[own] if np.size(field) > 1 else field for field in points.at(one.g)))

        def residuals(x, draw=draw, kernel=kernel, own=own, at=at):
            data = (log[draw, own] - np.stack(predict(x[None], at), -1)) / sd[own] * told[own]
            return np.concatenate([data.ravel(), np.sqrt(tails[draw, kernel]) * (x - mean[draw, kernel]) @ half])

        start = theta[draw, kernel].clip(bounds[0] + 1e-9, bounds[1] - 1e-9)
        excess[draw, kernel] = least[draw, kernel] - 2 * least_squares(residuals, start, bounds=bounds).cost
    assert -1e-6 < excess.min() < excess.max() < 1
    assert np.quantile(excess, 0.75) < 1e-3 and np.quantile(excess, 0.9) < 0.05


def test_the_top_clock_falls_with_power_where_clocks_are_not_recorded():
    one = fit(CANDIDATES, seen_of(recorded=False))
    log_time, _ = posterior._under_the_cap(one.gpu, one.theta[None], one.g[None])
    assert one.g[one.gpu.places["fall"]][0] > 0.003
    for kernel in range(K):
        assert log_time[0, kernel] == pytest.approx(at_every_pair(one, kernel)[:, 0], abs=1e-12)


def test_the_governor_lowers_the_clock_until_the_cap_is_kept():
    one = fit(CANDIDATES, seen_of(noise=0.001, cap_w=140.0))
    log_time, log_power = posterior._under_the_cap(one.gpu, one.theta[None], one.g[None])
    gpu, held, part = one.gpu, 0, constants(one, one.g)
    for kernel in range(K):
        cold = at_every_pair(one, kernel)
        for pair in range(P):
            known = one, part, one.theta[kernel], gpu.mem_node[pair]
            if np.exp(cold[pair, 1]) <= gpu.cap_w:
                assert (log_time[0, kernel, pair], log_power[0, kernel, pair]) == pytest.approx(cold[pair], abs=1e-9)
                continue
            held += 1
            ghz = brentq(
                lambda ghz, known=known: formula(*known, ghz, ghz)[1] - gpu.cap_w,
                gpu.core_ghz.min(),
                gpu.core_ghz.max(),
            )
            time_s = formula(*known, ghz, ghz)[0]
            # between clocks 1.7 % apart
            assert log_time[0, kernel, pair] == pytest.approx(max(np.log(time_s), cold[pair, 0]), abs=5e-4)
            assert log_power[0, kernel, pair] == pytest.approx(np.log(gpu.cap_w))
    assert held > 8
    drawn_time, drawn_energy = posterior.tables(one, 8)
    assert (drawn_energy - drawn_time).max() <= np.log(1.03 * gpu.cap_w) + 1e-12


def test_draws_are_as_much_too_narrow_as_points_left_out_say():
    """Squared errors in predicted deviations of each fourth point of a kernel, six points' worth of calm, and each
    kernel leaning on all."""
    mask = np.random.default_rng(3).random((K, P)) < 0.8
    mask[:, 0] = True
    one = fit(CANDIDATES, seen_of(noise=0.03, mask=mask))
    seen, z2 = one.seen, [[] for _ in range(K)]
    turn = np.full(len(seen.target), -1)
    for kernel in range(K):
        own = np.flatnonzero((seen.target == kernel) & (seen.pair > 0))
        turn[own] = np.arange(len(own)) % 4
    for fold in range(4):
        out = turn == fold
        log_time, log_energy = posterior.tables(one.without(out), 12, 7 + 1 + fold)
        for point in np.flatnonzero(out):
            place = seen.target[point], seen.pair[point]
            for_point = []
            for table, truth in zip((log_time, log_energy - log_time), measured(seen)[point]):
                drawn = table[:, place[0], place[1]]
                for_point.append(min((truth - drawn.mean()) ** 2 / drawn.var(ddof=1), 64.0))
            z2[place[0]].append(for_point)
    every = np.array([each for own in z2 for each in own])
    overall = (6 + every.sum(0)) / (6 + len(every))
    expected = [np.sqrt(np.maximum((6 * overall + np.sum(own, axis=0)) / (6 + len(own)), 1)) for own in z2]
    assert posterior.calibrate(one, 12, seed=7) == pytest.approx(np.array(expected))
    assert np.max(expected) > 1.05
    # and draws are made wider by it, about their mean
    plain, wide = (posterior.tables(one, 6, 2, each)[0] for each in (None, np.tile([1.7, 1.0], (K, 1))))
    assert wide - wide.mean(0) == pytest.approx(1.7 * (plain - plain.mean(0)))
    assert wide.mean(0) == pytest.approx(plain.mean(0))


# --- what is worth measuring ------------------------------------------------------------------------------------------


def test_draws_hold_what_was_measured_and_are_widened_by_what_32_draws_say_of_points_left_out():
    """In an iteration; infinite where nothing is offered."""
    mask = np.random.default_rng(4).random((K, P)) < 0.7
    mask[:, 0] = True
    offered = mask.copy()
    offered[:, [2, 5, 9]] = True
    assert not offered.all() and (offered & ~mask).any()
    one = fit(replace(CANDIDATES, offered=offered), seen_of(noise=0.03, mask=mask))
    tables = posterior.tables(one, 6, 4, posterior.calibrate(one, 32, 4))
    for found, table, seen in zip(draws_of(one, 6, 4), tables, (one.seen.time_s, one.seen.energy_j), strict=True):
        expected = np.where(offered, np.exp(table), np.inf)
        expected[:, one.seen.target, one.seen.pair] = seen
        assert found == pytest.approx(np.array([3.0, 1.0, 2.0, 7.0, 1.5])[:, None] * expected)


def test_the_price_and_the_bound_are_those_of_linear_programming_in_every_draw():
    rng = np.random.default_rng(9)
    time, energy = rng.uniform(0.5, 1.5, (6, 4, 5)), rng.uniform(0.5, 1.5, (6, 4, 5))
    time[:, 1, 3] = energy[:, 1, 3] = np.inf
    for share in (0.75, 0.9, 1.1, 3.0):
        price, bound = price_of_time(time, energy, share * 4)
        for draw in range(6):
            known = np.isfinite(time[draw]).ravel()
            one_each = np.kron(np.eye(4), np.ones(5))[:, known]
            args = [time[draw].ravel()[known]], [share * 4], one_each, np.ones(4)
            found = linprog(energy[draw].ravel()[known], *args)
            if found.status:
                continue
            assert bound[draw] == pytest.approx(found.fun, rel=1e-6)
            assert price[draw] == pytest.approx(-found.ineqlin.marginals[0], rel=1e-5, abs=1e-9)


@pytest.mark.parametrize(("budget_s", "price", "dearer"), [(5.7, 0.0, 3.0), (4.7, 3.0, 10.0), (4.2, 10.0, None)])
def test_a_budget_is_kept_to_a_trillionth(budget_s, price, dearer):
    """One kernel may save a second for 3 J, another half a second for 5 J: sums that differ by rounding are one time.
    Where no choice is fast enough, the price is the highest that is tried, ten thousand times the least power."""
    time, energy = np.array([[[2.5, 1.5], [3.2, 2.7]]]), np.array([[[7.0, 10.0], [4.0, 9.0]]])
    for over, expected in ((0.9e-12, price), (1.1e-12, dearer or 1e4 * 11 / 4.2)):
        found, bound = price_of_time(time, energy, budget_s * (1 - over))
        assert found == pytest.approx([expected], rel=1e-6, abs=0)
        fastest_or_cheapest = (energy + expected * time).min(-1).sum()
        assert bound == pytest.approx([fastest_or_cheapest - expected * budget_s], rel=1e-4, abs=1e-4)


def baselines(energy_j, weight):
    """(candidates, points) of kernels at auto alone."""
    count = len(energy_j)
    nan, ones = np.full(count, np.nan), np.ones(count)
    candidates = replace(
        CANDIDATES,
        targets=tuple(map(str, range(count))),
        offered=np.ones((count, P), bool),
        weight=np.array(weight, float),
        baseline=np.zeros(count, int),
        copies=np.ones(count, int),
    )
    return candidates, Seen(np.arange(count), np.zeros(count, int), ones, np.array(energy_j, float), ones, nan, nan)


def test_a_kernel_matters_while_it_and_all_smaller_ones_could_save_more_than_half_the_threshold():
    """Weighted energies 600, 300, 80, 20 of 1000 J: at most 30 % of 20 J could be saved of the last."""
    args = baselines([300, 20, 100, 80], [2, 1, 3, 1])
    assert matter(*args, 0.0119).tolist() == [0, 2, 3, 1] and matter(*args, 0.012).tolist() == [0, 2, 3]
    assert matter(*args, 0.0599).tolist() == [0, 2, 3] and matter(*args, 0.06).tolist() == [0, 2]
    assert matter(*args, 0.25).tolist() == [0]


def test_a_budget_is_small_where_all_probes_take_two_thirds_of_it():
    """5 kernels of 8 copies, 10 pairs and auto 3 times: 104 measurements; 4 probes a kernel, or 2 of known work."""
    assert CANDIDATES.everything(3) == 8 * (10 + 3) == 104
    assert full_probes(CANDIDATES) == 4
    for whole, is_it in ((37, True), (38, False)):
        # 2 x (whole - 8) against 3 x 20
        options = Options(budget=(whole + 0.5) / 104, baseline_repeats=1, all_baseline_repeats=3)
        assert is_small(CANDIDATES, options) is is_it
    known = replace(CANDIDATES, work=((1.0, 1.0),) * 5)
    assert full_probes(known) == 2
    assert is_small(known, Options(budget=22.5 / 104, all_baseline_repeats=3))
    assert not is_small(known, Options(budget=23.5 / 104, all_baseline_repeats=3))
    alone = replace(CANDIDATES, pairs=PAIRS[6:], offered=np.ones((K, 5), bool))
    assert full_probes(alone) == 2, "one memory clock"


def probes(candidates=CANDIDATES, beyond=None, also=(), energy_j=(50.0, 90.0, 10.0, 4.0, 30.0)):
    """{target: [(core, memory) of its probes]} of a search that has measured auto, and pairs (target, pair) besides.
    beyond: measurements that the budget leaves beyond auto; None: enough."""
    points = [*((k, 0) for k in range(K)), *also]
    target, pair = np.array(points).T
    nan = np.full(len(points), np.nan)
    seen = Seen(target, pair, 0 * nan + 1, np.array(energy_j)[target], nan, nan, nan)
    seen = replace(seen, time_s=np.ones(len(points)), n=np.ones(len(points)))
    share = 1.0 if beyond is None else (beyond + 8 + 0.5) / candidates.everything(1)
    found = propose(candidates, seen, options=Options(budget=share, threshold=1e-6))
    assert found.stage == "probes"
    pairs = {k: [candidates.pairs[p] for own, p in found.points if own == k] for k, _ in found.points}
    return list(pairs.items())


def test_probes_differ_from_kernel_to_kernel_those_of_most_energy_first():
    """Weighted energies 150, 90, 20, 28, 45 J. Nearest to shares of 2100 MHz that rotate, at 9, 5, 9 and 5 GHz."""
    first = [(1500.0, 9000.0), (1800.0, 5000.0), (900.0, 9000.0), (2100.0, 5000.0)]
    second = [(1800.0, 9000.0), (1500.0, 5000.0), (900.0, 9000.0), (1800.0, 5000.0)]
    third = [(1500.0, 9000.0), (1800.0, 5000.0), (900.0, 9000.0), (2100.0, 5000.0)]
    assert probes() == [(0, first), (1, second), (4, third), (3, first), (2, second)]
    # what was measured is not asked for again, and four anywhere are enough
    place = PAIRS.index((900.0, 9000.0))
    assert dict(probes(also=[(0, place)]))[0] == [first[0], first[1], first[3]]
    assert 0 not in dict(probes(also=[(0, pair) for pair in (1, 2, 3, 6)]))


def test_where_the_budget_is_small_half_of_it_goes_to_two_probes_each():
    both, one = [(1800.0, 9000.0), (1800.0, 5000.0)], [(1800.0, 9000.0)]
    assert probes(beyond=7) == [(0, both), (1, one)], "three of seven"
    assert probes(beyond=8) == [(0, both), (1, [(1800.0, 9000.0), (1500.0, 5000.0)])]
    assert probes(beyond=8, also=[(0, PAIRS.index(both[0])), (0, PAIRS.index(both[1]))])[0][0] == 1
    # only the core clock varies: one each, of all of it
    alone = tuple((core, None) for core, _ in PAIRS[6:])
    flat = replace(CANDIDATES, pairs=((None, None), *alone), offered=np.ones((K, 6), bool))
    assert probes(flat, beyond=4) == [(k, [(1800.0, None)]) for k in (0, 1, 4, 3)]


def test_memory_clocks_within_five_percent_are_one():
    """8.6 GHz counts as 9 GHz, 8.5 GHz does not."""
    for mhz, lower in ((8600.0, 5000.0), (8500.0, 8500.0)):
        more = tuple((core, mhz) for core in (300.0, 900.0, 1500.0, 1800.0, 2100.0))
        wide = replace(CANDIDATES, pairs=(*PAIRS, *more), offered=np.ones((K, P + 5), bool))
        (_, first), *_ = probes(wide)
        assert first[1] == (1800.0, lower)


@pytest.mark.parametrize(("caps_w", "probed_w"), [((300.0, 200.0), 300.0), ((200.0, 300.0), 300.0), ((200.0,), 200.0)])
def test_clocks_are_probed_under_autos_further_settings_where_any_are_offered_there(caps_w, probed_w):
    """Auto is measured under a power cap of 300 W."""
    pairs = ((None, None, 300.0), *((*pair, cap_w) for cap_w in caps_w for pair in PAIRS[1:]))
    capped = replace(CANDIDATES, pairs=pairs, offered=np.ones((K, len(pairs)), bool))
    assert probes(capped) == [(k, [(*pair, probed_w) for pair in pairs]) for k, pairs in probes()]


def test_what_a_search_spends_counts_every_copys_auto():
    measured_ = np.zeros((K, P), bool)
    measured_[:, 0] = measured_[1, 3:6] = measured_[4, 9] = True
    assert CANDIDATES.spent(measured_, 2) == 2 * 8 + 4
    assert CANDIDATES.steps.tolist() == [
        [4, 1],
        *([step, mem] for mem in (0, 1) for step in range(5)),
    ]


def test_pairs_are_taken_by_gain_for_a_second_while_each_gains_a_tenth_of_the_thresholds_share():
    """Four kernels, threshold 1: a tenth over the root of four is 0.05, for the first pair a fifth of that."""
    four = replace(CANDIDATES, targets=tuple("abcd"), offered=np.ones((4, 3), bool))
    mask = np.zeros((4, 3), bool)
    mask[:, 0] = True
    one, other = np.full((2, 2, 4, 3), 2.0)
    # expected over two draws: a 0.33 and 0.34, b 0.051, c 0.049, d less than nothing
    one[:, 0, 1], one[:, 0, 2], one[:, 1, 1] = [1.54, 1.8], [1.7, 1.62], [1.898, 2.5]
    one[:, 2, 2], one[:, 3, 1] = [1.951, 1.951], [2.4, 2.4]
    other[:, 3, 2] = [1.93, 1.93]  # the other slack's

    def taken(most=9, seconds=None, threshold=1.0, scores=(one, other)):
        seconds = np.ones((4, 3)) if seconds is None else seconds
        return _greedy(list(scores), mask, four, threshold, most, seconds)

    # once one pair of a is known, the other gains 0.08
    assert taken() == [(0, 2), (0, 1), (3, 2), (1, 1)]
    assert taken(most=2) == [(0, 2), (0, 1)]
    slow = np.ones((4, 3))
    slow[0, 2] = 1.1
    assert taken(seconds=slow)[0] == (0, 1), "0.33 J/s against 0.31"
    few = np.full((2, 4, 3), 2.0)
    for gain, found in ((0.0101, [(2, 2)]), (0.0099, [])):
        few[:, 2, 2] = 2.0 - gain
        assert taken(scores=(few,)) == found


def test_of_a_kernel_that_the_model_does_not_describe_the_least_sure_pair_near_its_best_is_asked_for():
    """Near: up to half as much again as the least mean energy x mean time."""
    mask = np.zeros((1, 5), bool)
    mask[0, 0] = True
    one = replace(CANDIDATES, targets=("a",), offered=np.array([[True, True, True, True, False]]))
    time = np.ones((3, 1, 5))
    energy = np.array([[10.0, 8.0, 9.0, 11.9, 1.0]]) * np.array([[1.0], [1.0], [1.0]])[:, None]
    wobble = np.array([-1.0, 0.0, 1.0])[:, None]
    energy[:, 0] += wobble * np.array([0.0, 0.4, 0.9, 3.0, 9.0])
    assert _doubted(one, time, energy, mask, [0]) == [(0, 3)]
    time[:, 0, 3] = 1.02  # 12.14 J s, more than half as much again as 8
    assert _doubted(one, time, energy, mask, [0]) == [(0, 2)]
    assert _doubted(one, time, energy, np.ones((1, 5), bool), [0]) == []


def test_a_round_asks_for_the_pair_of_most_expected_gain_and_ends_below_the_threshold():
    """What is left is the mean over draws of the bound with all pairs below that with the measured ones."""
    mask = np.zeros((K, P), bool)
    mask[:, [0, 8, 9, 3, 4]] = True
    seen = seen_of(noise=0.001, mask=mask)
    options = Options(threshold=1e-5, budget=1.0, draws=16, baseline_repeats=1, all_baseline_repeats=1)
    found = propose(CANDIDATES, seen, (0.0, 0.04), options)
    one = fit(CANDIDATES, seen)
    time, energy = draws_of(one, 16, options.seed)
    weight = CANDIDATES.weight[seen.target]
    base = seen.pair == 0
    base_s, base_j = (weight * seen.time_s)[base].sum(), (weight * seen.energy_j)[base].sum()
    hidden = np.where(mask, 0.0, np.inf)
    left = []
    gains = []
    for slack in (0.0, 0.04):
        price, every = price_of_time(time, energy, (1 + slack) * base_s)
        own = price_of_time(time + hidden, energy + hidden, (1 + slack) * base_s)[1]
        left.append((own - every) / base_j)
        score = (energy + price[:, None, None] * time) / base_j
        best = np.where(mask, score, np.inf).min(-1, keepdims=True)
        gains.append(np.where(mask, 0, np.maximum(best - score, 0).mean(0)))
    assert found.left == pytest.approx(np.max(left, axis=0).mean())
    assert found.left_high == pytest.approx(np.quantile(np.max(left, axis=0), 0.95))
    gain = np.max(gains, axis=0)
    assert found.points[0] == np.unravel_index(gain.argmax(), gain.shape)
    assert len(found.points) <= 3 and len(set(found.points)) == len(found.points)
    assert not any(mask[point] for point in found.points)
    enough = propose(CANDIDATES, seen, (0.0, 0.04), Options(threshold=found.left, budget=1.0, draws=16))
    assert not enough.points and "threshold" in enough.reason


@pytest.mark.parametrize(("budget", "most"), [(1.0, 3), (31.5 / 88, 3), (30.5 / 88, 2)])
@pytest.mark.parametrize("window_s", [None, 3e-3])
def test_a_round_measures_half_as_many_pairs_as_kernels_each_for_a_window_or_a_launch(
    window_s, budget, most, monkeypatch
):
    """Of the budget's 31 or 30 measurements, 8 were auto and 20 others; half of 5 kernels are 3."""
    mask = np.zeros((K, P), bool)
    mask[:, [0, 8, 9, 3, 4]] = True
    seen, asked = seen_of(noise=0.001, mask=mask), []
    monkeypatch.setattr(proposing, "_greedy", lambda *args: asked.append(args[-2:]) or _greedy(*args))
    found = propose(CANDIDATES, seen, options=Options(threshold=1e-5, budget=budget, draws=16, window_s=window_s))
    ((room, seconds),) = asked
    assert room == most >= len(found.points) > 0
    launch_s = np.median(draws_of(fit(CANDIDATES, seen), 16, 1)[0], 0) / CANDIDATES.weight[:, None]
    assert launch_s.min() < 3e-3 < launch_s.max()
    assert seconds == pytest.approx(np.ones((K, P)) if window_s is None else np.maximum(launch_s, window_s))
