"""On a machine with a GPU: kernels are right, plans repeat without drift, bad input is refused and leaks nothing."""

import ctypes
import time

import numpy as np
import pytest

from kernel_dvfs.measurement.real.native_loads import NativeIteration
from kernel_dvfs.native import check
from kernel_dvfs.native.plans import pass_of, row_plan
from kernel_dvfs.workload.passes import passes
from kernel_dvfs.workload.rows import kernel_rows

GELU = {"M": 64, "C": 256}
GEMM = {
    "count": 1,
    "M": 128,
    "N": 256,
    "K": 64,
    "layout": "TN",
    "has_bias": 1,
    "accumulate": 0,
}


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


# asked before the kernels are built: without a driver there is nothing to build them for here
pytestmark = pytest.mark.skipif(not has_driver(), reason="no GPU to test on: no NVIDIA driver (libcuda.so.1)")


@pytest.fixture(scope="module")
def device(cuda):
    try:
        return cuda.Device(0)
    except cuda.DeviceError as error:
        pytest.skip(f"no GPU to test on: {error}")


@pytest.fixture
def arena(device, cuda):
    return cuda.Arena(device)


@pytest.fixture(scope="module")
def tiny(device):
    about = device.info()
    model = check.TINY
    return model, kernel_rows(
        model, 2, bias_split="llmc", sm_count=about["sm_count"], threads_per_sm=about["threads_per_sm"]
    )


def test_every_case_agrees_with_the_reference(device, cuda, cpu):
    about = device.info()
    wrong = []
    for model, _, degree, _, row in check.cases(about["sm_count"], about["threads_per_sm"], cuda.HAS_FUSED_ATTENTION):
        for variant in check.variants(row):
            for deviation in check.check_row(cuda, cpu, cuda.Arena(device), row, model, variant):
                if not deviation.excess <= 1:
                    wrong.append((row.id, model.name, degree, variant, deviation.tensor, deviation.excess))
    assert wrong == []


class Tampered:
    """A C reference that is off by `factor` in one element of each output."""

    def __init__(self, cpu, factor):
        self.cpu, self.factor = cpu, factor

    def run(self, op, settings, tensors, dtype):
        results = self.cpu.run(op, settings, tensors, dtype=dtype)
        for result in results.values():
            largest = np.unravel_index(np.nanargmax(np.abs(check.widen(result))), result.shape)
            bits = np.float32(check.widen(result)[largest] * self.factor).view(np.uint32)
            result[largest] = bits >> 16 if result.dtype == np.uint16 else bits.view(np.float32)
        return results


@pytest.mark.parametrize(("factor", "is_right"), [(1.0, True), (1.05, False)])
def test_a_deviation_of_a_twentieth_in_one_element_is_found(arena, cuda, cpu, tiny, factor, is_right):
    model, rows = tiny
    for op in ("gelu_forward", "layernorm_backward", "classifier", "gemm"):
        row = next(row for row in rows if row.op == op)
        deviations = check.check_row(cuda, Tampered(cpu, factor), arena, row, model)
        assert all((deviation.excess <= 1) == is_right for deviation in deviations), op


def test_the_same_seed_gives_the_same_values_and_another_others(device, cuda):
    def values(seed):
        return cuda.Plan(cuda.Arena(device), "gelu_forward", GELU, seed=seed).read("inp")

    assert np.array_equal(values(1), values(1))
    assert not np.array_equal(values(1), values(2))


def test_an_offset_takes_memory_for_as_long_as_its_arena_is_there(device, cuda):
    free_byte, mb = device.free_byte(), 1 << 20
    arena = cuda.Arena(device, offset_byte=70 * mb)
    plan = cuda.Plan(arena, "gelu_forward", GELU)
    assert free_byte - device.free_byte() >= 70 * mb
    del plan, arena
    assert device.free_byte() == free_byte
    with pytest.raises(cuda.OutOfMemory, match="offset of an arena"):
        cuda.Arena(device, offset_byte=1 << 50)


def test_values_are_as_the_measurement_needs_them(device, cuda):
    """Unit normal activations, weights of 0.02, attention that is causal with rows of sum 1, Zipf ids skewed."""
    arena = cuda.Arena(device)
    inp = check.widen(cuda.Plan(arena, "gelu_forward", {"M": 512, "C": 512}).read("inp"))
    assert abs(inp.mean()) < 0.01 and inp.std() == pytest.approx(1, abs=0.01)
    plan = cuda.Plan(arena, "softmax_backward", {"N": 2, "T": 128, "scale": 0.1, "skip_upper": 0})
    att = check.widen(plan.read("att"))
    assert np.abs(att.sum(axis=-1) - 1).max() < 0.02
    assert not np.triu(att, 1).any() and (att[:, 127] > 0).all()
    ids = {"M": 4096, "T": 64, "C": 256, "V": 1000}
    uniform = cuda.Plan(arena, "embedding_forward", ids).read("ids")
    zipf = cuda.Plan(arena, "embedding_forward", ids, zipf_exponent=1.0).read("ids")
    assert uniform.min() >= 0 and uniform.max() < 1000 and zipf.min() >= 0 and zipf.max() < 1000
    assert len(np.unique(zipf)) < 0.9 * len(np.unique(uniform))


def test_plans_share_tensors_by_name(arena, cuda):
    binding = {"name": "hidden", "fill": {"kind": "normal", "sd": 1.0}}
    first = cuda.Plan(arena, "gelu_forward", GELU, tensors={"out": binding})
    second = cuda.Plan(arena, "gelu_forward", GELU, tensors={"inp": binding})
    first.run(1)
    assert np.array_equal(first.read("out"), second.read("inp"))
    with pytest.raises(cuda.ShapeError, match=r"inp is bf16 \(32, 256\), but the tensor hidden .* bf16 \(64, 256\)"):
        cuda.Plan(arena, "gelu_forward", {"M": 32, "C": 256}, tensors={"inp": binding})
    with pytest.raises(cuda.ShapeError, match="the name hidden stands for two of its tensors"):
        cuda.Plan(arena, "gelu_forward", GELU, tensors={"inp": binding, "out": binding})


def test_a_graph_and_a_loop_do_the_same(device, cuda, arena):
    plan = cuda.Plan(arena, "gelu_forward", GELU)
    plan.run(1)
    once = plan.checksum()
    graph = plan.capture(10)
    graph.launch(3)
    assert plan.checksum() == once
    assert graph.time(5) > 0 and plan.time(5) > 0


def test_rotation_uses_every_set_of_buffers(arena, cuda):
    plan = cuda.Plan(arena, "gelu_forward", GELU, rotate=3)
    untouched = plan.checksum()
    sums = []
    for _ in range(4):
        plan.run(1)
        sums.append(plan.checksum())
    assert len({untouched, *sums[:3]}) == 4 and sums[3] == sums[2]
    assert plan.info()["rotate"] == 3


def test_a_plan_tells_the_work_of_a_launch_as_the_reference_counts_it(arena, cuda, cpu, tiny):
    model, rows = tiny
    for row in rows:
        plan = row_plan(cuda, arena, row, model)
        given = {name: plan.read(name) for name, *_ in plan.tensors() if name == "ids"}
        info, counted = plan.info(), cpu.work(row.op, row.settings, given)
        assert {name: info[name] for name in counted} == counted, row.id
        if row.family == "gemm":
            assert info["tensor_flop"] == row.tensor_flop > 0
        assert info["read_byte"] > 0 and info["write_byte"] > 0, row.id


def test_the_bytes_of_a_look_up_are_those_of_the_tokens_that_it_holds(arena, cuda):
    plan = cuda.Plan(arena, "embedding_forward", {"M": 12, "T": 4, "C": 24, "V": 40})
    for distinct in (1, 5, 12):
        plan.write("ids", (3 * (np.arange(12) % distinct)).astype(np.int32))
        # bf16 rows of the tokens' and of the positions' table, and the tokens themselves
        assert plan.info()["read_byte"] == 2 * 24 * (distinct + 4) + 4 * 12, distinct


def test_a_whole_iteration_runs_as_two_passes_and_again_to_the_same_bits(device, cuda, tiny):
    model, rows = tiny
    arena = cuda.Arena(device)
    plans = {row.id: row_plan(cuda, arena, row, model) for row in rows}
    all_of_it = [pass_of(cuda, plans, steps) for steps in passes(rows).values()]
    for _ in range(2):
        for part in all_of_it:
            part.run(1)
    sums = {row_id: plan.checksum() for row_id, plan in plans.items()}
    for part in all_of_it:
        part.run(3)
    assert {row_id: plan.checksum() for row_id, plan in plans.items()} == sums
    assert all(part.time(2) > 0 for part in all_of_it)


def test_an_iteration_with_marks_has_the_times_of_its_kernels(device, cuda):
    """Of a few layers, large enough that what a mark adds is little of a kernel."""
    about = device.info()
    model = "gpt3-125m"
    rows = kernel_rows(model, 16, sm_count=about["sm_count"], threads_per_sm=about["threads_per_sm"])
    arena = cuda.Arena(device)
    plans = {row.id: row_plan(cuda, arena, row, model) for row in rows}
    steps = [step for each in passes(rows).values() for step in each]
    iteration, whole = NativeIteration(cuda, device, plans, steps), pass_of(cuda, plans, steps)
    launches = {row.id: row.multiplicity for row in rows}
    passing = iteration.start(0.5, 1.5)
    while not passing.is_over():
        passing.feed()
        time.sleep(0.005)
    found = passing.passes()
    passing.stop()
    summed_us = sum(count * found["time_us"][name] for name, count in launches.items())
    assert summed_us == pytest.approx(found["iteration_us"], rel=1e-6) and found["n"] >= 1
    alike = max(1, round(1e6 / found["iteration_us"]))
    whole_us = 1e3 * whole.time(alike) / alike
    assert found["iteration_us"] == pytest.approx(whole_us, rel=0.02), "marks are taken off"
    assert 200 < found["sm_mhz"] < 4000
    wrong = {}
    for name, plan in plans.items():
        plan.run(1)
        alone_us = 1e3 * plan.time(50) / 50
        if alone_us > 50 and not 0.75 <= found["time_us"][name] / alone_us <= 1.25:
            wrong[name] = found["time_us"][name], alone_us
    assert not wrong, "caches and clocks differ by less"
    iteration.check()
    assert iteration.round(dict.fromkeys(tuple(plans)[:2], 3)).run_s > 0


def test_marks_of_time_are_written_in_order_as_far_as_there_is_room(device, cuda, arena):
    marks, plan = cuda.TimeMarks(device, 7), cuda.Plan(arena, "gelu_forward", GELU)
    graph = cuda.Pass([([marks, plan], 2), ([marks], 1)]).capture(1)
    graph.launch(1)
    times = marks.times_ns()
    assert len(times) == 3 and times == sorted(times)
    graph.launch(2)
    assert len(marks.times_ns()) == 7, "no more than there is room for"
    marks.clear()
    graph.launch(1)
    assert len(marks.times_ns()) == 3 and marks.times_ns()[0] >= times[-1]
    with pytest.raises(cuda.ShapeError, match="room is 0, expected at least 1"):
        cuda.TimeMarks(device, 0)


def test_a_gemm_algorithm_can_be_pinned(arena, cuda):
    first = cuda.Plan(arena, "gemm", GEMM, algorithm="timed")
    pinned = cuda.Plan(arena, "gemm", GEMM, algorithm=first.info()["pinned"])
    same = ("algorithm_id", "tile_id", "stages_id", "split_k", "swizzle", "cluster_shape_id", "workspace_byte")
    assert [pinned.info()[key] for key in same] == [first.info()[key] for key in same]
    assert pinned.info()["algorithm_chosen_by"] == "pinned"
    with pytest.raises(cuda.ShapeError, match="algorithm is 3 bytes, expected the bytes of a pinned algorithm"):
        cuda.Plan(arena, "gemm", GEMM, algorithm=b"abc")
    with pytest.raises(cuda.ShapeError, match="algorithm is 'fast', expected heuristic, timed"):
        cuda.Plan(arena, "gemm", GEMM, algorithm="fast")


def test_the_clock_probe_reads_a_clock_of_this_gpu(device, cuda, arena):
    plan = cuda.Plan(arena, "gelu_forward", {"M": 8192, "C": 8192})
    probe = cuda.ClockProbe(device, 3)
    probe.mark()
    for _ in range(2):
        plan.run(1000)
        probe.mark()
    clocks = probe.sm_mhz()
    assert len(clocks) == 2 and all(200 < clock < 4000 for clock in clocks)
    with pytest.raises(cuda.ShapeError, match="number of marks is 4, expected at most 3"):
        probe.mark()


@pytest.mark.parametrize(
    ("op", "settings", "message"),
    [
        ("gelu_forward", {"M": 8, "C": 33}, "gelu_forward: C is 33, expected a multiple of 8"),
        (
            "softmax_forward",
            {"N": 4096, "T": 1024, "scale": 0.1},
            r"B\*NH\*T\*T is 4096\*1024\*1024, expected below 2\^31",
        ),
        ("gelu_forward", {"M": 8}, "setting 'C' is missing"),
        ("gelu_forward", {"M": 0, "C": 8}, "M is 0, expected an int >= 1"),
        ("gelu", {}, "operation is 'gelu', expected"),
        ("embedding_forward", {"M": 65, "T": 64, "C": 256, "V": 9}, "M is 65, expected a multiple of T = 64"),
        # cut to 32 bits, each of these would be a grid that leaves most of the work undone
        (
            "layernorm_forward",
            {"M": 2**40, "C": 8, "eps": 1e-5},
            "its grid is 137438953472 blocks, expected at most 2147",
        ),
        ("gelu_forward", {"M": 2**50, "C": 8}, r"its grid is \d+ blocks, expected at most 2147483647: a smaller shape"),
        ("wpe_backward", {"M": 2**31, "T": 2**31, "C": 8, "seed": 1}, "M is 2147483648, expected at most 2147483647"),
        ("wpe_backward", {"M": 2**30, "T": 2**30, "C": 2**20, "seed": 1}, r"its grid is \d+ blocks"),
        ("bias_reduce", {"OC": 2**50, "G": 2}, r"its grid is \d+ blocks"),
        ("bias_backward", {"M": 4, "OC": 2**50, "G": 2}, r"its grid is \d+ blocks"),
        (
            "permute_heads_forward",
            {"B": 1, "T": 1, "NH": 2**27, "HS": 8},
            r"its grid is \d+ blocks, expected at most 65535",
        ),
        ("classifier", {"M": 2**31, "V": 8, "Vp": 8, "dloss": 1.0}, "M is 2147483648, expected at most"),
        ("residual_layernorm", {"M": 2**40, "C": 8, "eps": 1e-5}, r"its grid is \d+ blocks"),
    ],
)
def test_a_bad_shape_is_refused_in_one_line(arena, cuda, op, settings, message):
    with pytest.raises(cuda.ShapeError, match=message) as refused:
        cuda.Plan(arena, op, settings)
    assert "\n" not in str(refused.value)


def test_a_product_is_timed_once_a_shape_and_process(device, cuda):
    first, second = (cuda.Plan(cuda.Arena(device), "gemm", GEMM, algorithm="timed").info() for _ in range(2))
    other = cuda.Plan(cuda.Arena(device), "gemm", GEMM | {"M": 256}, algorithm="timed").info()
    assert first == second and first["algorithm_chosen_by"] == other["algorithm_chosen_by"] == "timed"
    assert cuda.Plan(cuda.Arena(device), "gemm", GEMM).info()["algorithm_chosen_by"] == "heuristic"


def test_a_row_is_read_in_each_of_three_ways_where_it_fits(arena, cuda):
    for channels, ways in ((2048, 3), (6152, 2), (12296, 1)):
        fit = [way for way, longest in check.LAYERNORM_READING.items() if channels <= longest]
        assert len(fit) == ways
        for way in check.LAYERNORM_READING:
            settings = {"M": 64, "C": channels}
            if way in fit:
                cuda.Plan(arena, "layernorm_backward", settings, variant=way).run(1)
            else:
                with pytest.raises(cuda.ShapeError, match=f"C is {channels}, expected at most"):
                    cuda.Plan(arena, "layernorm_backward", settings, variant=way)


def test_fused_attention_is_that_of_its_own_forward_pass(device, cuda, cpu):
    """Forward's results go into backward on the GPU as they do in training; the reference does the same."""
    if not cuda.HAS_FUSED_ATTENTION:
        pytest.skip("built without cuDNN")
    arena, settings = cuda.Arena(device), {"B": 2, "T": 192, "NH": 3, "HS": 64, "scale": 64**-0.5}
    bound = {name: {"name": name} for name in ("qkv", "out", "lse")}
    forward = cuda.Plan(arena, "attention_forward", settings, tensors=bound)
    backward = cuda.Plan(arena, "attention_backward", settings, tensors=bound)
    forward.run(1)
    backward.run(1)
    inputs = {name: backward.read(name) for name in ("qkv", "out", "lse", "dout")}
    wanted = cpu.run("attention_backward", settings, inputs)["dqkv"]
    got, want = (check.widen(each).astype(float) for each in (backward.read("dqkv"), wanted))
    # NumPy with the same rounding of weights and gradients: 0.0026
    assert np.linalg.norm(got - want) < 0.005 * np.linalg.norm(want)
    assert (np.abs(got - want) <= check.RELATIVE * np.abs(want) + check.FUSED_OF_TYPICAL * want.std()).all()


def test_other_bad_options_are_refused_in_one_line(arena, cuda):
    for options, message in (
        ({"variant": "fast"}, "variant is"),
        ({"rotate": 0}, "rotate is 0, expected at least 1"),
        ({"tensors": {"foo": {"name": "x"}}}, "tensors is 'foo', expected names of its tensors only"),
        ({"algorithm": "timed"}, "algorithm is 'timed', expected none: only gemm"),
        ({"algorithm": 3}, "algorithm is 3, expected a string"),
        ({"seed": -1}, "seed is -1, expected an int >= 0"),
        ({"zipf_exponent": -0.5}, "zipf_exponent is -0.5, expected at least 0"),
        ({"tensors": {"inp": 3}}, "tensors: inp is 3, expected a dict"),
        ({"tensors": {"inp": {"name": 3}}}, "tensors: inp: name is 3, expected a string"),
        (
            {"tensors": {"inp": {"fill": {"kind": "ids", "vocabulary": 9}}}},
            "fill of inp is ids, expected one of numbers",
        ),
        ({"tensors": {"inp": {"fill": {"kind": "normal", "sd": "x"}}}}, "sd is 'x', expected a finite number"),
        (
            {"tensors": {"inp": {"fill": {"kind": "ones"}}}},
            "fill of inp is 'ones', expected normal, lower, causal, ids or zero",
        ),
    ):
        with pytest.raises(cuda.ShapeError, match=message):
            cuda.Plan(arena, "gelu_forward", GELU, **options)
    plan = cuda.Plan(arena, "gelu_forward", GELU)
    with pytest.raises(
        cuda.ShapeError, match=r"inp is float32 \(64, 256\), expected a C-contiguous uint16 \(64, 256\)"
    ):
        plan.write("inp", np.zeros((64, 256), np.float32))
    with pytest.raises(cuda.ShapeError, match="number of repetitions is 0, expected at least 1"):
        plan.run(0)
    with pytest.raises(cuda.ShapeError, match="at least one plan"):
        cuda.Pass([([], 1)])


def test_a_refused_plan_takes_nothing(device, cuda):
    """Megabytes each time, for memory, shape, algorithm and rotation, in an arena that shares names."""
    arena = cuda.Arena(device)
    shared = {"inp": {"name": "inp"}}
    large = {"M": 65536, "C": 1024}
    cuda.Plan(arena, "gemm", GEMM)  # the arena's workspace stays
    sets = device.free_byte() // (4 * 65536 * 1024) + 2
    free_byte = device.free_byte()
    for _ in range(1000):
        with pytest.raises(cuda.OutOfMemory, match=r"needs \d+ bytes of device memory, \d+ are free"):
            cuda.Plan(arena, "gelu_forward", {"M": 1 << 28, "C": 8192})
        with pytest.raises(cuda.OutOfMemory):
            cuda.Plan(arena, "gelu_forward", large, rotate=sets, tensors=shared)
        with pytest.raises(cuda.ShapeError, match="C is 1033"):
            cuda.Plan(arena, "gelu_forward", {"M": 65536, "C": 1033}, tensors=shared)
        with pytest.raises(cuda.ShapeError, match="algorithm"):
            cuda.Plan(arena, "gemm", {**GEMM, "M": 8192, "N": 8192}, algorithm=bytes(80))
    assert device.free_byte() == free_byte
    cuda.Plan(arena, "gelu_forward", {"M": 64, "C": 256}, tensors=shared)  # the name is still free


def test_a_graph_outlives_its_plan(device, cuda):
    plan = cuda.Plan(cuda.Arena(device), "gelu_forward", {"M": 4096, "C": 4096})
    graph = plan.capture(10)
    del plan
    other = cuda.Plan(cuda.Arena(device), "gelu_forward", {"M": 4096, "C": 4096}, seed=2)
    other.run(1)
    before = other.checksum()
    graph.launch(5)
    assert other.checksum() == before, "the graph wrote into another plan's memory"


def test_a_small_plan_takes_no_shared_memory_from_a_large_one(device, cuda):
    arena = cuda.Arena(device)
    vocabularies = (50304, 30016)
    large, small = (cuda.Plan(arena, "classifier", {"M": 64, "V": V, "Vp": V, "dloss": 1e-3}) for V in vocabularies)
    small.run(1)
    large.run(1)
    device.synchronize()


def test_ids_are_checked_and_their_buckets_follow(device, cuda, cpu):
    settings = {"M": 128, "V": 100, "C": 256, "seed": 1}
    plan = cuda.Plan(cuda.Arena(device), "wte_backward", settings)
    plan.run(1)
    with pytest.raises(cuda.ShapeError, match=r"ids\[5\] is 100, expected an id from 0 to 99"):
        ids = plan.read("ids")
        ids[5] = 100
        plan.write("ids", ids)
    ids = np.full(128, 7, np.int32)
    plan.write("ids", ids)
    plan.write("dwte_out", np.zeros((100, 256), np.uint16))
    plan.run(1)
    inputs = {name: plan.read(name) for name, role, *_ in plan.tensors() if role == "input"}
    wanted = cpu.run("wte_backward", settings, inputs, dtype="bf16")["dwte_out"]
    assert np.array_equal(plan.read("dwte_out"), wanted)
    shared = cuda.Plan(cuda.Arena(device), "wte_backward", settings, tensors={"ids": {"name": "ids"}})
    with pytest.raises(cuda.ShapeError, match="ids is shared as ids, expected ids of its own"):
        shared.write("ids", ids)


def test_every_set_of_a_rotation_has_its_own_buckets(device, cuda):
    settings = {"M": 256, "V": 1000, "C": 512, "seed": 1}
    plan = cuda.Plan(cuda.Arena(device), "wte_backward", settings, rotate=3)
    plan.run(3)
    once = plan.checksum()
    plan.run(6)
    assert plan.checksum() == once
    with pytest.raises(
        cuda.ShapeError, match="number of repetitions to capture is 2, expected a multiple of rotate = 3"
    ):
        plan.capture(2)


def test_a_device_that_is_not_there_is_refused(device, cuda):
    with pytest.raises(cuda.DeviceError, match="CUDA device 99 does not exist: there are"):
        cuda.Device(99)


def energy_probe(cuda, arena, device, kind, iterations, **settings):
    about = device.info()
    byte = {"l2_read": about["l2_byte"] // 4}.get(kind, 17 * about["l2_byte"] if kind.startswith("dram") else 0)
    return cuda.EnergyProbe(arena, kind, iterations=iterations, byte=byte, **settings)


@pytest.mark.parametrize("operands", ["random", "zero"])
def test_an_energy_probe_gives_the_same_result_after_every_launch(cuda, arena, device, operands):
    for kind in cuda.ENERGY_PROBES:
        probe = energy_probe(cuda, arena, device, kind, 3, operands=operands)
        probe.run(1)
        before = probe.checksum()
        probe.run(5)
        assert probe.checksum() == before, kind


def test_an_energy_probe_of_twice_the_iterations_takes_twice_as_long(cuda, arena, device):
    for kind in cuda.ENERGY_PROBES:
        short, long = {True: (2, 4), False: (100_000, 200_000)}[kind.startswith("dram")]
        few, many = (energy_probe(cuda, arena, device, kind, n) for n in (short, long))
        for probe in (few, many):
            probe.time(3)
        assert many.time(5) / few.time(5) == pytest.approx(2, rel=0.1), kind


@pytest.mark.parametrize(
    ("kind", "per_cycle", "least"),
    # FLOP, operations or bytes of one SM in a cycle. fp32: half of the peak of 256, since an FMA reads three registers,
    # two of one bank (inferred); spin: a launch of 50 us begins and ends
    [("fp32", 128, 0.9), ("sfu", 16, 0.9), ("shared", 128, 0.85), ("spin", 1, 0.95)],
)
def test_an_energy_probe_keeps_its_unit_busy_and_no_busier_than_it_can_be(cuda, arena, device, kind, per_cycle, least):
    if device.info()["compute_capability"] != "9.0":
        pytest.skip("the rates of a Hopper GPU")
    probe, clock = energy_probe(cuda, arena, device, kind, 100_000), cuda.ClockProbe(device, 2)
    probe.time(20)
    clock.mark()
    seconds = 1e-3 * probe.time(50) / 50
    clock.mark()
    done = probe.info()
    amount = done["operations"] or done["read_byte"]
    reached = amount / seconds / (1e6 * clock.sm_mhz()[0] * device.info()["sm_count"])
    assert least * per_cycle <= reached <= 1.01 * per_cycle


# --- the kernel that stays on the GPU and stamps ---


@pytest.mark.parametrize("reads", [False, True])
def test_stamps_come_at_an_even_pace_with_cycles_bytes_and_marks(device, cuda, reads):
    byte = 16 * device.info()["l2_byte"] if reads else 0
    stamper = cuda.Stamper(device, step_ns=20_000, room=100_000, byte=byte)
    for _ in range(2):  # a second start forgets the first
        stamper.start()
        seen = []
        for mark in (1, 2, 3):
            time.sleep(0.1)
            stamper.mark(mark)
            seen.append(len(stamper.stamps()))
        time.sleep(0.1)
        stamper.stop()
        assert 0 < seen[0] < seen[1] < seen[2], "they can be read while the kernel runs"
        stamps = stamper.stamps()
        time_ns, cycles, read, marks = stamps.T
        steps = np.diff(time_ns)
        assert np.all(steps > 0) and np.median(steps) == pytest.approx(20_000, rel=0.1)
        assert np.all(np.diff(cycles) > 0) and list(dict.fromkeys(marks)) == [0, 1, 2, 3]
        # each mark is seen about as long after the one before as the host waited
        first = [time_ns[np.argmax(marks == mark)] for mark in (1, 2, 3)]
        assert np.diff(first) == pytest.approx(1e8, rel=0.2)
        half = len(stamps) // 2
        assert (cycles[-1] - cycles[half]) / (time_ns[-1] - time_ns[half]) == pytest.approx(1.5, abs=1.3)  # GHz
        assert (read[-1] > 0) == reads and np.all(np.diff(read) >= 0)
        assert np.array_equal(stamper.stamps(-7), stamps[-7:])


def test_a_stamper_ends_by_itself_when_its_room_is_full(device, cuda):
    stamper = cuda.Stamper(device, step_ns=5_000, room=200)
    stamper.start()
    device.synchronize()
    assert len(stamper.stamps()) == 200


@pytest.mark.parametrize("wrong", [{"step_ns": 10}, {"room": 1}, {"byte": 24}, {"byte": 16}])
def test_a_stamper_that_makes_no_sense_is_refused(device, cuda, wrong):
    with pytest.raises(cuda.ShapeError, match="stamper"):
        cuda.Stamper(device, **({"step_ns": 20_000, "room": 1000, "byte": 0} | wrong))
