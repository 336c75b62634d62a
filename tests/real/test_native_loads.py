"""Plans of the native layer as loads: what is kept in memory, what makes room, what is refused. A stand-in for the CUDA
extension is held to its signatures; its plans are tested on a GPU (tests/native)."""

import json
from pathlib import Path

import pytest
from cuda_signatures import held, signatures, stands_for

from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.target import MeasurementTarget
from kernel_dvfs_clocks.errors import InputError

UUID = "GPU-1a2b3c4d-0000"


class OutOfMemory(InputError):
    """The extension's own."""


class Cuda:
    """As much of `_cuda` as loads ask for, called as the binding's signatures allow; an arena holds `room` plans.

    arenas: operations of the plans made in each; algorithms: (settings of a product, the algorithm asked for).
    """

    OutOfMemory = OutOfMemory

    def __init__(self, room=100, uuid=UUID, cublaslt=130100):
        self.room, self.uuid, self.cublaslt, self.arenas, self.algorithms = room, uuid, cublaslt, [], []
        self.offsets_byte, self.free_byte = [], 1 << 40
        for kind in (self.Device, self.Arena, self.Plan, self.Pass, self.Event, self.ClockProbe):
            setattr(self, kind.__name__, held(f"{kind.__name__}.__init__", kind))

    def Device(self, index):
        assert index == 0
        return Device(self)

    def Arena(self, device, offset_byte=0):
        self.offsets_byte.append(offset_byte)
        if offset_byte > self.free_byte:
            raise OutOfMemory("no room for an offset")
        self.arenas.append([])
        return self.arenas[-1]

    def Plan(self, arena, op, settings, tensors, zipf_exponent, algorithm="heuristic"):
        assert zipf_exponent is None and tensors
        if len(arena) == self.room:
            raise OutOfMemory("no room")
        arena.append(op)
        if op != "gemm":
            return Plan(op)
        self.algorithms.append((tuple(settings.items()), algorithm))
        return Gemm(settings, algorithm)

    def Pass(self, groups):
        assert all(isinstance(plan, Plan) for plans, _ in groups for plan in plans)
        return Runnable()

    def Event(self, device):
        return Event()

    def ClockProbe(self, device, marks):
        return Probe()


@stands_for("Device")
class Device:
    def __init__(self, cuda):
        self._cuda = cuda

    def info(self):
        known = {"uuid": self._cuda.uuid, "runtime": 13000, "cublaslt": self._cuda.cublaslt}
        return known | {"sm_count": 132, "threads_per_sm": 2048}


@stands_for("Event")
class Event:
    def record(self):
        pass


@stands_for("ClockProbe")
class Probe:
    def mark(self):
        pass


@stands_for("Runnable")
class Runnable:
    def run(self, n):
        pass

    def time(self, n):
        return 0.5 * n


@stands_for("Plan")
class Plan(Runnable):
    def __init__(self, op):
        self.op, self.sum = op, 7

    def checksum(self):
        return self.sum

    def info(self):
        return {"shape": f"{self.op} of a size", "operation": self.op, "tensor_byte": 12}


@stands_for("Plan")
class Gemm(Plan):
    MARKS = (
        *("algorithm_id", "tile_id", "stages_id", "split_k", "reduction_scheme", "swizzle", "custom_option"),
        *("inner_shape_id", "cluster_shape_id"),
    )

    def __init__(self, settings, algorithm):
        super().__init__("gemm")
        self.settings, self.algorithm = settings, algorithm

    def info(self):
        pinned = self.algorithm if isinstance(self.algorithm, bytes) else f"{self.settings} {self.algorithm}".encode()
        by = "pinned" if pinned is self.algorithm else self.algorithm
        marks = dict.fromkeys(self.MARKS, 1) | {"algorithm_id": 66}
        return super().info() | marks | {"pinned": pinned, "algorithm_chosen_by": by}


@pytest.fixture
def loads(monkeypatch, tmp_path):
    """`loads(cuda)` are NativeLoads over a stand-in for the extension; all else of the native layer is itself."""
    from kernel_dvfs.measurement.real import native_loads

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(tmp_path)

    def make(cuda):
        monkeypatch.setattr(native_loads, "load", lambda backend: cuda)
        monkeypatch.setattr(native_loads, "library_sha256", lambda backend: "0" * 64)
        return native_loads.NativeLoads(UUID)

    return make


def with_algorithm(setup, how):
    return Setup(*setup[:-1], setup.measurement | {"gemm_algorithm": how})


@pytest.fixture(scope="module")
def setup(setup_of):
    whole = setup_of(gpu="h200_sxm")
    return with_algorithm(whole, "timed")


GELU, GEMM = MeasurementTarget("kernel", "forward_gelu"), MeasurementTarget("kernel", "forward_fc_gemm")
FORWARD = MeasurementTarget("pass", "forward")


def test_a_plan_is_built_once_and_says_what_it_is(loads, setup):
    cuda = Cuda()
    made = loads(cuda)
    load = made.prepare(setup, GELU)
    made.prepare(setup, GEMM)
    made.prepare(setup, GELU)
    assert cuda.arenas == [["gelu_forward", "gemm"]]
    load.start()
    about = {"shape": "gelu_forward of a size", "dtype": "bf16", "instance": "gelu_forward", "working_set_bytes": 12}
    assert load.about == about | {"by_graph": False}
    assert load.run_s == pytest.approx(0.5e-3)


def test_where_memory_is_short_all_else_goes_first(loads, setup):
    cuda = Cuda(room=1)
    made = loads(cuda)
    made.prepare(setup, GELU)
    made.prepare(setup, GEMM)
    assert cuda.arenas == [["gelu_forward"], ["gemm"]]


def test_each_move_gives_all_back_and_has_what_follows_lie_elsewhere(loads, setup):
    cuda = Cuda()
    made = loads(cuda)
    for number in range(10):
        made.prepare(setup, GELU)
        assert cuda.arenas == [["gelu_forward"]] * (number + 1), "all is made anew"
        assert made.move() and made._plans == {} and made._arena is None
    first, *others = cuda.offsets_byte
    assert (
        first == 0 and others[:7] == [place * 14 * (1 << 20) for place in range(1, 8)] and others[7:] == [0, 14 << 20]
    )


def test_where_there_is_no_room_for_an_offset_either_it_goes_first(loads, setup):
    cuda = Cuda()
    made = loads(cuda)
    made.move()
    cuda.free_byte = 1 << 20
    assert not made.chooses(setup, GELU) and made.prepare(setup, GELU).about["instance"] == "gelu_forward"
    assert cuda.offsets_byte == [14 << 20, 0] and cuda.arenas == [["gelu_forward"]]


def test_what_does_not_fit_alone_is_refused_with_the_remedy(loads, setup):
    with pytest.raises(InputError, match=r"kernel/forward_gelu: no room; configure a smaller batch"):
        loads(Cuda(room=0)).prepare(setup, GELU)


def test_a_pass_is_made_of_its_rows(loads, setup):
    cuda = Cuda()
    made = loads(cuda)
    load = made.prepare(setup, FORWARD)
    assert len(cuda.arenas[0]) == len({name for name, _ in setup.targets["pass"]["forward"]})
    assert load.about["instance"].startswith("pass ") and "shape" not in load.about
    assert load.about["instance"] == made.prepare(setup, FORWARD).about["instance"]


def test_results_that_change_while_they_are_measured_are_refused(loads, setup):
    load = loads(Cuda()).prepare(setup, GELU)
    load.check()
    load._plan.sum = 8
    with pytest.raises(InputError, match="its results changed while it ran"):
        load.check()


def test_another_gpu_than_nvml_holds_is_refused(loads):
    with pytest.raises(InputError, match="CUDA opened GPU GPU-other, NVML holds GPU-1a2b3c4d"):
        loads(Cuda(uuid="GPU-other"))


def test_an_algorithm_is_timed_once_and_every_later_process_and_target_runs_the_same(loads, setup):
    cuda = Cuda()
    made = loads(cuda)
    assert made.chooses(setup, GEMM) and not made.chooses(setup, GELU)
    first = made.prepare(setup, GEMM).about["instance"]
    assert first.startswith("cublaslt algorithm=66 tile=1 ") and not made.chooses(setup, GEMM)
    assert made.chooses(setup, FORWARD), "its other products have yet to be chosen"
    again = Cuda()
    later = loads(again)
    assert not later.chooses(setup, GEMM)
    assert later.prepare(setup, GEMM).about["instance"] == first
    later.prepare(setup, FORWARD)
    assert not later.chooses(setup, FORWARD)
    ((product, how),) = cuda.algorithms
    assert how == "timed"
    chosen = dict(again.algorithms)
    assert chosen.pop(product) == f"{dict(product)} timed".encode(), "the bytes that the first process chose"
    assert set(chosen.values()) == {"timed"}
    assert json.loads(Path("results/sim-h200-sxm/gemm_algorithms.json").read_text())["cublaslt"].keys() == {"130100"}


def test_another_cublaslt_chooses_again(loads, setup):
    loads(Cuda()).prepare(setup, GEMM)
    assert loads(Cuda(cublaslt=130200)).chooses(setup, GEMM)


def test_by_heuristic_nothing_is_chosen_or_kept(loads, setup):
    cuda = Cuda()
    made, heuristic = loads(cuda), with_algorithm(setup, "heuristic")
    assert not made.chooses(heuristic, GEMM)
    made.prepare(heuristic, GEMM)
    assert [how for _, how in cuda.algorithms] == ["heuristic"] and not Path("results").exists()


@pytest.mark.parametrize("damage", ["", "[]", '{"schema": "other"}', '{"schema": "kernel-dvfs/gemm-algorithms/1"}'])
def test_a_damaged_file_of_algorithms_is_refused_with_the_remedy(loads, setup, damage):
    made = loads(Cuda())
    path = Path("results/sim-h200-sxm/gemm_algorithms.json")
    path.parent.mkdir(parents=True)
    path.write_text(damage)
    with pytest.raises(InputError, match=r"gemm_algorithms.json: .*; delete it: algorithms are then chosen again"):
        made.prepare(setup, GEMM)


def test_a_stand_in_is_called_as_the_extension_can_be_or_not_at_all():
    assert list(signatures()["Pass.run"].parameters) == ["n"] and "Plan.capture" in signatures()
    with pytest.raises(TypeError, match=r"multiple values|too many|missing|unexpected"):
        Cuda().Plan([], "gemm", {}, {})  # options are by name
    with pytest.raises(KeyError, match=r"Plan\.speed"):
        stands_for("Plan")(type("Wrong", (), {"speed": lambda self: 1}))
