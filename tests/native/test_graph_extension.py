"""The extension that reads captured graphs: built where a C++ compiler is, run on a driver without a GPU."""

import ctypes
import json
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from kernel_dvfs.native.load import load
from kernel_dvfs.native.steady import Steady
from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_step import nodes

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def graph_results(native_results):
    """A results folder that holds the built backend `graph`."""
    return native_results("graph")


@pytest.fixture(scope="session")
def graph(graph_results):
    return load("graph", graph_results)


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    """Path of the fake driver."""
    path = tmp_path_factory.mktemp("driver") / "libfakecuda.so"
    words = [shutil.which("cc") or "gcc", "-std=c11", "-O1", "-shared", "-fPIC", "-o", path, HERE / "fake_cuda.c"]
    subprocess.run(words, check=True)
    return path


@pytest.fixture
def device(graph, driver):
    return graph.Device(str(driver))


def told(driver):
    library = ctypes.CDLL(str(driver))
    library.fake_told.restype = ctypes.c_char_p
    words = library.fake_told().decode().split()
    return dict(zip(words[::2], map(int, words[1::2])))


def test_it_compiles_without_a_warning_and_its_record_has_the_flags_of_what_computes(graph_results):
    assert "warning" not in (graph_results / "native" / "graph.log").read_text(encoding="utf-8").lower()
    flags = json.loads((graph_results / "native/graph/build.json").read_text(encoding="utf-8"))["flags"]["cxx"]
    assert "-O3" in flags and "-O1" not in flags, "the bindings' come last"


def test_without_a_driver_it_imports_and_says_so_in_one_line(graph):
    with pytest.raises(InputError, match=r"no CUDA driver \(libno\.so\): capture and measure on a machine with"):
        graph.Device("libno.so")


def test_a_driver_that_lacks_a_function_is_called_too_old(graph, tmp_path):
    (tmp_path / "old.c").write_text("int cuInit(unsigned f) { return f; }")
    path = tmp_path / "libold.so"
    subprocess.run([shutil.which("cc") or "gcc", "-shared", "-fPIC", "-o", path, tmp_path / "old.c"], check=True)
    with pytest.raises(InputError, match=r"lacks cuDriverGetVersion: it is older than CUDA 12\.3; update it"):
        graph.Device(str(path))


def test_the_device_says_what_it_is(device):
    facts = device.info()
    assert facts["name"] == "Fake GPU" and facts["sm_count"] == 2 and facts["driver"] == 13000
    assert facts["uuid"] == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"


def test_nodes_are_read_with_parameters_given_either_way(graph, device):
    captured = graph.Captured(device, 1)
    first, memset, packed, empty, copy = captured.nodes()
    assert (first["function"], first["grid"], first["block"], first["shared_byte"]) == (
        *("_Z3addPfi4pair", (4, 2, 1), (128, 1, 1)),
        16,
    )
    assert first["parameters"] == struct.pack("<qiii", 0x7F0000001000, 7, 3, 4) and not first["is_packed"]
    # no function, only a kernel of a library; parameters in one block; a cluster
    assert (packed["function"], packed["cluster"]) == ("nvjet_sm90_tst_128x256", (2, 0, 0))
    assert packed["parameters"] == struct.pack("<qii", 0x7F0000002000, 64, 128) and packed["is_packed"]
    assert (memset["target"], memset["byte"]) == (0x7F0000002000, 8)
    assert (copy["source"], copy["target"], copy["byte"], copy["is_host"]) == (
        0x7F0000001000,
        0x7F0000003000,
        128,
        False,
    )
    assert empty == {"type": 5}
    assert captured.edges() == [(0, 1, False), (1, 2, True), (2, 3, False), (3, 4, False)]


def test_plain_numbers_among_the_parameters_are_told_by_the_types_of_a_name(graph, device):
    captured = graph.Captured(device, 1)
    found, _ = nodes.from_graph(captured.nodes(), captured.edges(), graph.demangled)
    # add(float*, int, pair): an address, 7, and a struct; a memset of 0; a packed block; a copy
    assert [node.values for node in found] == [(7,), (0,), (), ()]


def test_empty_nodes_are_left_out_and_edges_go_through_them(graph, device):
    captured = graph.Captured(device, 1)
    found, places = nodes.from_graph(captured.nodes(), captured.edges())
    assert [node.kind for node in found] == ["kernel", "memset", "kernel", "copy"]
    assert places == [0, 1, 2, 4]
    assert [node.after for node in found] == [(), (0,), (1,), (2,)]
    assert [node.programmatic for node in found] == [False, False, True, False]


def test_a_chain_has_an_edge_between_each_two_nodes_of_all_rounds(graph, device, driver):
    before = told(driver)
    loop = graph.Captured(device, 1).loop([0, 1, 2], 5)
    loop.run(3)
    after = told(driver)
    assert after["edges"] - before["edges"] == 3 * 5 - 1
    assert after["launches"] - before["launches"] == 3
    before = told(driver)["edges"]
    graph.Captured(device, 1).loop([0, 0, 0, 1, 2])  # a kernel with copies of it right behind
    assert told(driver)["edges"] - before == 4
    after = told(driver)
    del loop
    assert told(driver)["destroyed"] == after["destroyed"] + 1


def test_a_chain_may_rest_behind_each_round_and_mark_nodes(graph, device, driver):
    captured = graph.Captured(device, 1)
    before = told(driver)["edges"]
    captured.chain([0, 1, 2], 5, 1000)
    assert told(driver)["edges"] - before == 4 * 5 - 1
    before = told(driver)["edges"]
    captured.chain([], 5, 1000)
    assert told(driver)["edges"] - before == 5 - 1
    probe, before = graph.ClockProbe(device, 8), told(driver)["edges"]
    loop = captured.chain([0, 1, 2], 2, 1000, [0, 2], probe)
    assert told(driver)["edges"] - before == 2 * (3 + 4 + 1) - 1
    assert len(probe.sm_mhz()) == 8 - 1, "each round has marks of its own"
    with pytest.raises(InputError, match="mark 9 of at most 8"):
        captured.chain([0], 1, 0, [0], probe)
    del probe
    loop.run(1)  # it writes into the probe's memory, so it keeps that
    for wrong, number in (([3], 3), ([2, 0], 0), ([1, 1], 1)):
        with pytest.raises(InputError, match=f"node {number} of 3 to mark, not in rising order or not there"):
            captured.chain([0, 1, 2], 1, 0, wrong, graph.ClockProbe(device, 8))
    for wrong in ([-1], ["0"], "0", [(0, 0)]):
        with pytest.raises(TypeError):
            captured.chain([0, 1, 2], 1, 0, wrong, graph.ClockProbe(device, 8))
    with pytest.raises(InputError, match="nodes to mark, and no probe"):
        captured.chain([0], 1, 0, [0])
    with pytest.raises(InputError, match="neither nodes nor a rest"):
        captured.chain([])
    with pytest.raises(InputError, match="node 9 of 5"):
        captured.chain([9])


def test_a_chain_is_timed_by_marks_before_some_nodes_and_two_at_its_end(graph, device, driver):
    captured, marks, before = graph.Captured(device, 1), graph.TimeMarks(device, 100), told(driver)["edges"]
    loop = captured.timed([0, 1, 2], [0, 2], marks)
    assert told(driver)["edges"] - before == 3 + 2 + 2 - 1
    assert marks.times_ns() == []
    marks.clear()
    del marks
    loop.run(1)  # it writes into their memory, so it keeps that
    with pytest.raises(InputError, match="node 3 of 3 to mark, not in rising order or not there"):
        captured.timed([0, 1, 2], [3], graph.TimeMarks(device, 8))
    with pytest.raises(InputError, match="time marks: room for none"):
        graph.TimeMarks(device, 0)
    with pytest.raises(TypeError):
        captured.timed([0], [0], None)


def test_a_graph_with_its_own_edges_has_those_and_rounds_wait_for_each_other(graph, device, driver):
    captured = graph.Captured(device, 1)
    before = told(driver)["edges"]
    captured.loop([0, 1, 2, 4], 1, True)
    assert told(driver)["edges"] - before == 3  # the copy waits for the packed kernel, through the empty node
    before = told(driver)["edges"]
    captured.loop([0, 4], 1, True)
    assert told(driver)["edges"] - before == 1  # through three nodes that are left out
    before = told(driver)["programmatic"]
    captured.loop([0, 1, 2], 1, True)
    assert told(driver)["programmatic"] - before == 1
    captured.loop([0, 2], 1, True)
    assert told(driver)["programmatic"] - before == 1  # what is left out would have ended
    before = told(driver)["edges"]
    captured.loop([0, 1], 3, True)
    assert told(driver)["edges"] - before == 3 * 1 + 3 * 1 + 2  # own; into each end; from an end to the next round


def test_a_place_that_is_no_node_is_refused(graph, device):
    with pytest.raises(InputError, match="node 9 of 5"):
        graph.Captured(device, 1).loop([9])


def test_hashes_tell_which_chunk_changed(device):
    memory = (ctypes.c_uint64 * 64)(*range(64))
    address = ctypes.addressof(memory)
    if address % 16:
        pytest.skip("memory of this machine's allocator is not aligned to 16 bytes")
    # the second range has a rest, the third nothing, the last is of what the first is
    ranges = [(address, 256), (address + 256, 208), (address, 0), (address, 256)]
    before = device.hashes(ranges, 128)
    memory[20] += 1
    memory[56] += 1
    after = device.hashes(ranges, 128)
    assert len(before) == 6 * 8 and before[:16] == before[32:]
    same = [before[at : at + 8] == after[at : at + 8] for at in range(0, 48, 8)]
    assert same == [True, False, True, False, True, False]
    assert device.hashes([], 128) == b""


def test_it_offers_what_a_steady_load_is_made_of(graph, device, driver):
    before = told(driver)["launches"]
    steady = Steady(graph, device, _Counted(graph.Captured(device, 1).loop([0])))
    for _ in range(3):
        steady.feed()
    assert told(driver)["launches"] > before and steady.ended >= 0
    steady.stop()


class _Counted:
    """A loop that says that it takes 10 ms, whatever the fake's events say."""

    def __init__(self, loop):
        self.run = loop.run

    def time(self, count):
        self.run(count)
        return 10.0 * count


def test_names_are_demangled_as_far_as_they_are_mangled(graph):
    assert graph.demangled("_Z3addPfi") == "add(float*, int)"
    assert graph.demangled("nvjet_sm90_tst") == "nvjet_sm90_tst"


def test_declarations_are_those_of_the_toolkit(root):
    """Compiles against cuda.h, where it is."""
    nvcc = shutil.which("nvcc")
    places = [Path(nvcc).resolve().parents[1] / "include"] if nvcc else []
    include = next(
        (place for place in [*places, Path("/usr/local/cuda/include")] if (place / "cuda.h").is_file()), None
    )
    if include is None:
        pytest.skip("no cuda.h")
    words = ["-std=c++17", "-fsyntax-only", f"-I{root / 'native' / 'graph'}", f"-I{include}", HERE / "graph_abi.cpp"]
    subprocess.run([shutil.which("c++") or "g++", *words], check=True)


def test_the_kernels_are_assembled_for_every_architecture(root, tmp_path):
    nvcc = shutil.which("nvcc")
    ptxas = nvcc and shutil.which("ptxas", path=str(Path(nvcc).resolve().parent))
    if not ptxas:
        pytest.skip("no ptxas")
    text = (root / "native" / "graph" / "kernels.hpp").read_text(encoding="utf-8")
    (tmp_path / "kernels.ptx").write_text(text.split('R"(')[1].split(')";')[0].lstrip(), encoding="utf-8")
    for architecture in ("sm_80", "sm_90"):
        subprocess.run([ptxas, f"-arch={architecture}", tmp_path / "kernels.ptx", "-o", tmp_path / "k"], check=True)
