"""Plans of the native layer as loads: what is kept in memory, what makes room, what is refused. CUDA itself is stubbed:
its plans are tested on a GPU (tests/native)."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from kernel_dvfs.errors import InputError
from kernel_dvfs.measurement.target import Target

UUID = "GPU-1a2b3c4d-0000"


class OutOfMemory(InputError):
    """The extension's own."""


class Cuda:
    """As much of `_cuda` as NativeLoads asks for; an arena holds `room` plans."""

    OutOfMemory = OutOfMemory

    def __init__(self, room=100, uuid=UUID):
        self.room, self.uuid, self.arenas = room, uuid, []

    def Device(self, index):
        assert index == 0
        info = {"uuid": self.uuid, "runtime": 13000, "cublaslt": 130000, "sm_count": 132, "threads_per_sm": 2048}
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


@pytest.fixture
def loads(monkeypatch, setup_of):
    """`loads(cuda)` are NativeLoads over a stub; the modules of the native layer that it needs are stubs as well."""

    def make(cuda):
        def row_plan(cuda, arena, row, model, tensor_parallel, zipf_exponent):
            assert (model, tensor_parallel, zipf_exponent) == ("gpt3-xl", 1, None)
            if len(arena) == cuda.room:
                raise OutOfMemory("no room")
            arena.append(row.id)
            return Plan(row.id)

        def pass_of(cuda, plans, steps):
            return Plan("+".join(dict(steps)))

        for name, content in (
            ("kernel_dvfs.native.plans", {"row_plan": row_plan, "pass_of": pass_of}),
            ("kernel_dvfs.native.steady", {"Steady": lambda *arguments: arguments}),
        ):
            module = ModuleType(name)
            module.__dict__.update(content)
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr("kernel_dvfs.native.load.load", lambda backend: cuda)
        monkeypatch.delitem(sys.modules, "kernel_dvfs.measurement.real.native_loads", raising=False)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        from kernel_dvfs.measurement.real.native_loads import NativeLoads

        return NativeLoads(UUID)

    yield make
    sys.modules.pop("kernel_dvfs.measurement.real.native_loads", None)


@pytest.fixture(scope="module")
def setup(setup_of):
    return setup_of(gpu="h200_sxm")


GELU, GEMM = Target("kernel", "forward_gelu"), Target("kernel", "forward_fc_gemm")


def test_a_plan_is_built_once_and_says_what_it_is(loads, setup):
    cuda = Cuda()
    made = loads(cuda)
    load = made.prepare(setup, GELU)
    made.prepare(setup, GEMM)
    made.prepare(setup, GELU)
    assert cuda.arenas == [["forward_gelu", "forward_fc_gemm"]]
    assert load.about == {
        **{"shape": "forward_gelu", "dtype": "bf16", "instance": "gelu_forward", "working_set_bytes": 12}
    }
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
    load = loads(cuda).prepare(setup, Target("pass", "forward"))
    assert set(cuda.arenas[0]) == {name for name, _ in setup.targets["pass"]["forward"]}
    assert load.about == {"dtype": "bf16"}


def test_results_that_change_while_they_are_measured_are_refused(loads, setup):
    load = loads(Cuda()).prepare(setup, GELU)
    load.check()
    load._plan.sum = 8
    with pytest.raises(InputError, match="its results changed while it ran"):
        load.check()


def test_another_gpu_than_nvml_holds_is_refused(loads):
    with pytest.raises(InputError, match="CUDA opened GPU GPU-other, NVML holds GPU-1a2b3c4d"):
        loads(Cuda(uuid="GPU-other"))
