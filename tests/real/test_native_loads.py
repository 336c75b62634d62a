"""Plans of the native layer as loads: what is kept in memory, what makes room, what is refused. CUDA itself is stubbed:
its plans are tested on a GPU (tests/native)."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from kernel_dvfs.errors import InputError
from kernel_dvfs.measurement.setup import Setup
from kernel_dvfs.measurement.target import Target

UUID = "GPU-1a2b3c4d-0000"


class OutOfMemory(InputError):
    """The extension's own."""


class Cuda:
    """As much of `_cuda` as NativeLoads asks for; an arena holds `room` plans."""

    OutOfMemory = OutOfMemory

    def __init__(self, room=100, uuid=UUID, cublaslt=130100):
        self.cublaslt = cublaslt
        self.room, self.uuid, self.arenas, self.algorithms = room, uuid, [], []

    def Device(self, index):
        assert index == 0
        info = {"uuid": self.uuid, "runtime": 13000, "cublaslt": self.cublaslt, "sm_count": 132, "threads_per_sm": 2048}
        return SimpleNamespace(info=lambda: info)

    def Arena(self, device):
        self.arenas.append([])
        return self.arenas[-1]


class Plan:
    def __init__(self, name):
        self.name, self.sum = name, 7

    def run(self, n):
        pass

    def time(self, n):
        return 0.5

    def checksum(self):
        return self.sum

    def info(self):
        return {"shape": self.name, "operation": "gelu_forward", "tensor_byte": 12}


class Gemm(Plan):
    MARKS = (
        *("algorithm_id", "tile_id", "stages_id", "split_k", "reduction_scheme", "swizzle", "custom_option"),
        *("inner_shape_id", "cluster_shape_id"),
    )

    def __init__(self, name, algorithm):
        super().__init__(name)
        self.algorithm = algorithm

    def info(self):
        pinned = self.algorithm if isinstance(self.algorithm, bytes) else f"{self.name} {self.algorithm}".encode()
        by = "pinned" if pinned is self.algorithm else self.algorithm
        marks = dict.fromkeys(self.MARKS, 1) | {"algorithm_id": 66}
        return super().info() | marks | {"pinned": pinned, "algorithm_chosen_by": by}


@pytest.fixture
def loads(monkeypatch, setup_of, tmp_path):
    """`loads(cuda)` are NativeLoads over a stub; the modules of the native layer that it needs are stubs as well."""

    def make(cuda):
        def row_plan(cuda, arena, row, model, tensor_parallel, algorithm, zipf_exponent):
            assert (model, tensor_parallel, zipf_exponent) == ("gpt3-xl", 1, None)
            if len(arena) == cuda.room:
                raise OutOfMemory("no room")
            arena.append(row.id)
            cuda.algorithms.append((row.id, algorithm))
            return Gemm(row.id, algorithm) if row.gemm else Plan(row.id)

        def pass_of(cuda, plans, steps):
            return Plan("+".join(dict(steps)))

        for name, content in (
            ("kernel_dvfs.native.plans", {"row_plan": row_plan, "pass_of": pass_of}),
            ("kernel_dvfs.native.steady", {"Steady": lambda *arguments: SimpleNamespace(by_graph=False)}),
        ):
            module = ModuleType(name)
            module.__dict__.update(content)
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr("kernel_dvfs.native.load.load", lambda backend: cuda)
        monkeypatch.delitem(sys.modules, "kernel_dvfs.measurement.real.native_loads", raising=False)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        monkeypatch.chdir(tmp_path)
        from kernel_dvfs.measurement.real.native_loads import NativeLoads

        return NativeLoads(UUID)

    yield make
    sys.modules.pop("kernel_dvfs.measurement.real.native_loads", None)


def with_algorithm(setup, how):
    return Setup(*setup[:-1], setup.measurement | {"gemm_algorithm": how})


@pytest.fixture(scope="module")
def setup(setup_of):
    whole = setup_of(gpu="h200_sxm")
    return with_algorithm(whole, "timed")


GELU, GEMM = Target("kernel", "forward_gelu"), Target("kernel", "forward_fc_gemm")
FORWARD = Target("pass", "forward")


def test_a_plan_is_built_once_and_says_what_it_is(loads, setup):
    cuda = Cuda()
    made = loads(cuda)
    load = made.prepare(setup, GELU)
    made.prepare(setup, GEMM)
    made.prepare(setup, GELU)
    assert cuda.arenas == [["forward_gelu", "forward_fc_gemm"]]
    load.start()
    about = {"shape": "forward_gelu", "dtype": "bf16", "instance": "gelu_forward", "working_set_bytes": 12}
    assert load.about == about | {"by_graph": False}
    assert load.run_s == pytest.approx(0.5e-3)


def test_where_memory_is_short_all_else_goes_first(loads, setup):
    cuda = Cuda(room=1)
    made = loads(cuda)
    made.prepare(setup, GELU)
    made.prepare(setup, GEMM)
    assert cuda.arenas == [["forward_gelu"], ["forward_fc_gemm"]]


def test_what_does_not_fit_alone_is_refused_with_the_remedy(loads, setup):
    with pytest.raises(InputError, match=r"kernel/forward_gelu: no room; configure a smaller batch"):
        loads(Cuda(room=0)).prepare(setup, GELU)


def test_a_pass_is_made_of_its_rows(loads, setup):
    cuda = Cuda()
    made = loads(cuda)
    load = made.prepare(setup, FORWARD)
    assert set(cuda.arenas[0]) == {name for name, _ in setup.targets["pass"]["forward"]}
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
    chosen = dict(cuda.algorithms + again.algorithms)
    assert chosen.pop("forward_fc_gemm") == b"forward_fc_gemm timed", "the bytes that the first process chose"
    gemms = {name for name, about in setup.targets["kernel"].items() if about["kind"] == "gemm"}
    assert {chosen[name] for name in chosen if name in gemms} == {"timed"}
    assert json.loads(Path("results/sim-h200-sxm/gemm_algorithms.json").read_text())["cublaslt"].keys() == {"130100"}


def test_another_cublaslt_chooses_anew(loads, setup):
    loads(Cuda()).prepare(setup, GEMM)
    assert loads(Cuda(cublaslt=130200)).chooses(setup, GEMM)


def test_by_heuristic_nothing_is_chosen_or_kept(loads, setup):
    cuda = Cuda()
    made, heuristic = loads(cuda), with_algorithm(setup, "heuristic")
    assert not made.chooses(heuristic, GEMM)
    made.prepare(heuristic, GEMM)
    assert cuda.algorithms == [("forward_fc_gemm", "heuristic")] and not Path("results").exists()


@pytest.mark.parametrize("damage", ["", "[]", '{"schema": "other"}', '{"schema": "kernel-dvfs/gemm-algorithms/1"}'])
def test_a_damaged_file_of_algorithms_is_refused_with_the_remedy(loads, setup, damage):
    made = loads(Cuda())
    path = Path("results/sim-h200-sxm/gemm_algorithms.json")
    path.parent.mkdir(parents=True)
    path.write_text(damage)
    with pytest.raises(InputError, match=r"gemm_algorithms.json: .*; delete it: algorithms are then chosen anew"):
        made.prepare(setup, GEMM)
