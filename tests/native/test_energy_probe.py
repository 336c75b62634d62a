"""Energy probes: their loops hold what they are said to do, their work is counted, bad settings are refused.

Seen without a GPU: the extension loads, and the PTX shows the loops. What they do on one is in test_gpu.py.
"""

import re

import pytest
from ptx import entries

H200 = {"sm_count": 132, "l2_byte": 60 << 20}
DRAM_BYTE = 8 << 30
THREADS = 132 * 1024


def work(cuda, kind, **settings):
    if kind.startswith("dram"):
        settings = {"byte": DRAM_BYTE} | settings
    if kind == "l2_read":
        settings = {"byte": 16 << 20} | settings
    return cuda.energy_probe_work(kind, **H200, **settings)


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("kernel", "instruction", "count"),
    [
        ("fp32", r"fma\.rn", 33),  # one of them makes the step
        ("sfu", r"ex2\.approx", 16),
        ("sfu", r"lg2\.approx", 16),
        ("int32", r"xor\.b32", 33),  # one of them after the loop
        ("int32", r"add\.s32", 32),
        ("shared", r"ld\.shared\.v4", 4),
        ("read", r"ld\.global\.cg\.v4", 4),
        ("write", r"st\.global\.cs\.v4", 4),
        ("copy", r"st\.global\.cs\.v4", 4),
        ("tensor", r"mma\.sync\.aligned\.m16n8k16", 16),
        ("spin", r"%clock64", 2),
    ],
)
def test_the_loop_of_a_probe_holds_what_it_is_counted_for(energy_ptx, kernel, instruction, count):
    (body,) = (text for name, text in energy_ptx.items() if f"{kernel}_probe_kernel" in name)
    assert len(re.findall(rf"{instruction}\b", body)) == count


@pytest.fixture(scope="session")
def energy_ptx(to_ptx, root):
    """{kernel instance: its PTX}"""
    return entries(to_ptx(root / "native" / "cuda" / "energy_probe.cu"))


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("kind", "unit", "operations", "level", "byte"),
    [
        ("fp32", "flop", 64, "", (0, 0)),
        ("sfu", "sfu_op", 32, "", (0, 0)),
        ("int32", "int32_op", 64, "", (0, 0)),
        ("shared", "", 0, "shared", (64, 0)),
        ("tensor", "flop", 2048, "", (0, 0)),
    ],
)
def test_the_work_of_a_launch_is_that_of_its_threads(cuda, kind, unit, operations, level, byte):
    for iterations, warps, sms in ((1, 32, 132), (1000, 4, 66)):
        done = work(cuda, kind, iterations=iterations, warps=warps, sms=sms)
        threads = iterations * warps * 32 * sms
        assert (done["unit"], done["operations"]) == (unit, operations * threads)
        assert (done["level"], done["read_byte"], done["write_byte"]) == (level, byte[0] * threads, byte[1] * threads)


@pytest.mark.compiles
@pytest.mark.parametrize(("kind", "moved"), [("dram_read", (1, 0)), ("dram_write", (0, 1)), ("dram_copy", (1, 1))])
def test_a_memory_probe_moves_its_whole_working_set_in_each_pass(cuda, kind, moved):
    done = work(cuda, kind, iterations=3)
    bytes_moved = done["read_byte"], done["write_byte"]
    assert all(
        got == 0 if not share else 3 * DRAM_BYTE <= got < 3.01 * DRAM_BYTE for got, share in zip(bytes_moved, moved)
    )
    assert done["level"] == "dram"
    # what the threads take in one step
    assert (max(bytes_moved) // 3) % (4 * 16 * THREADS) == 0


@pytest.mark.compiles
def test_a_spin_is_counted_in_cycles_of_its_multiprocessors(cuda):
    assert work(cuda, "spin", iterations=5000, warps=8)["operations"] == 5000 * 132


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("kind", "settings", "complaint"),
    [
        ("warp", {}, "kind is 'warp', expected one of fp32, sfu"),
        ("fp32", {"warps": 0}, "warps is 0, expected 1 to 32"),
        ("fp32", {"warps": 33}, "warps is 33"),
        ("fp32", {"warps": True}, "warps is True, expected an int"),
        ("fp32", {"sms": 133}, "sms is 133, expected 1 to 132"),
        ("fp32", {"iterations": 0}, "iterations is 0"),
        ("fp32", {"iterations": 10**10}, "iterations is 10000000000"),
        ("fp32", {"operands": "ones"}, "operands is 'ones', expected random or zero"),
        ("fp32", {"byte": 1}, "byte is 1, expected 0: a fp32 probe has no working set"),
        ("l2_read", {"byte": 0}, "byte is 0, expected 1 to 62914560"),
        ("l2_read", {"byte": 1 << 30}, "byte is 1073741824"),
        ("dram_read", {"byte": 1 << 20}, "byte is 1048576, expected 1006632960"),
        ("dram_read", {"byte": -1}, "byte is -1, expected an int >= 0"),
        ("dram_read", {"byte": 10**30}, "expected an int >= 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_one_line(cuda, kind, settings, complaint):
    with pytest.raises(cuda.ShapeError) as refused:
        work(cuda, kind, **settings)
    assert complaint in str(refused.value) and "\n" not in str(refused.value)
