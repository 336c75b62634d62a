"""Which nodes are one launch and which launches are one class: on made lists, and on steps recorded on an H200."""

from collections import Counter

import pytest

from kernel_dvfs_clocks.errors import InputError
from kernel_dvfs_step import grouping, nodes
from kernel_dvfs_step.nodes import Node

POINTER, OTHER = 0x7F0000001000, 0x7F0000900000


def kernel(function="gemm", words=(), grid=(132, 1, 1), **more):
    return Node("kernel", function, grid=grid, block=(128, 1, 1), words=tuple(words), **more)


def memset(address, byte=4):
    return Node("memset", "memset", address=address, byte=byte)


def functions(found):
    return [node.function for node in found]


def launches(*found, joined=()):
    return [launch.nodes for launch in grouping.launches(found, functions(found), joined)]


def classes(*found, sections=None, times=None, segments=()):
    made = grouping.launches(found, functions(found))
    return grouping.classes(found, made, segments, sections or ["forward"] * len(made), times or [None] * len(made))


def test_one_grid_for_every_shape_is_not_one_class():
    assert classes(kernel(words=[POINTER, 2048]), kernel(words=[POINTER, 8192])) == [[0], [1]]


def test_addresses_tell_no_classes_apart():
    assert classes(kernel(words=[POINTER, 2048]), kernel(words=[OTHER, 2048])) == [[0, 1]]


def test_an_address_is_also_one_that_only_the_allocator_knows():
    low = 0x10_0000_0000
    found = (kernel(words=[low + 16]), kernel(words=[low + 512]))
    assert classes(*found) == [[0], [1]]
    assert classes(*found, segments=[(low, 4096)]) == [[0, 1]]


def test_two_small_numbers_in_a_word_are_no_address():
    assert not nodes.is_address(2048 << 32 | 8192, [])
    assert nodes.is_address(POINTER, [])


def test_shape_and_cluster_and_shared_memory_tell_classes_apart():
    found = [kernel(), kernel(grid=(66, 1, 1)), kernel(cluster=(2, 1, 1)), kernel(shared_byte=64), kernel()]
    assert classes(*found) == [[0, 4], [1], [2], [3]]


def test_launches_of_two_sections_are_of_two_classes():
    assert classes(kernel(), kernel(), kernel(), sections=["forward", "backward", "forward"]) == [[0, 2], [1]]


def test_times_that_disagree_split_a_class_and_noise_does_not():
    found = [kernel() for _ in range(4)]
    assert classes(*found, times=[100.0, 180.0, 104.0, 178.0]) == [[0, 2], [1, 3]]
    assert classes(*found, times=[100.0, 110.0, 104.0, 118.0]) == [[0, 1, 2, 3]]
    assert classes(*found, times=[1.0, 1.6, 2.4, 1.2]) == [[0, 1, 2, 3]], "a microsecond more is nothing"
    assert classes(*found, times=[100.0, None, 200.0, 300.0]) == [[0, 1, 2, 3]], "not traced: nothing to go by"


def test_parameters_that_count_launches_tell_no_classes_apart_and_time_does():
    # 40 time steps of a recurrent net, every fifth three times as long; another kernel, in three sizes
    steps = [kernel("gru_step", [POINTER, 7 * number]) for number in range(40)]
    times = [15.0 if number % 5 == 3 else 5.0 + 0.01 * number for number in range(40)]
    products = [kernel(words=[POINTER, size]) for size in (512, 1024, 2048)]
    long, products_of = [number for number in range(40) if number % 5 == 3], [[40], [41], [42]]
    short = [number for number in range(40) if number % 5 != 3]
    assert classes(*steps, *products, times=[*times, 4.0, 4.1, 4.2]) == [short, long, *products_of]
    # as many as tell sizes apart are taken at their word, and so are all where no time is known
    few = steps[: grouping._MOST_ALIKE]
    assert classes(*few, times=times[: len(few)]) == [[number] for number in range(len(few))]
    unknown = [*times[:-1], None]
    assert classes(*steps, times=unknown) == [[number] for number in range(40)]
    # another section, or another launch shape, is another class all the same
    sections = ["forward"] * 20 + ["backward"] * 20
    assert len(classes(*steps, sections=sections, times=[5.0] * 40)) == 2
    wide = [kernel("gru_step", each.words, grid=(64, 1, 1)) for each in steps[:20]]
    assert classes(*steps[:20], *wide, times=[5.0] * 40) == [list(range(20)), list(range(20, 40))]


def test_a_class_told_by_time_alone_is_of_one_time_though_times_run_into_each_other():
    steps = [kernel("gru_step", [number]) for number in range(100)]
    times = [20.0 * 1.02**number for number in range(100)]
    found = classes(*steps, times=times)
    assert sum(map(len, found)) == 100 and 5 <= len(found) <= 12
    assert all(times[members[-1]] <= 1.25 * times[members[0]] for members in found)


def test_lists_of_tensors_are_one_kind_of_work():
    name = "void at::native::multi_tensor_apply_kernel<FusedAdam>()"
    assert classes(kernel(name, [1, 2, 3]), kernel(name, [4, 5, 6])) == [[0, 1]]


def test_a_kernel_keeps_the_memset_whose_memory_it_is_given():
    assert launches(memset(POINTER, 64), kernel(), kernel(words=[POINTER + 32])) == [(1,), (0, 2)]


def test_a_memset_that_is_given_to_nobody_soon_is_work_of_its_own():
    far = [kernel() for _ in range(6)]
    assert launches(memset(POINTER), *far, kernel(words=[POINTER])) == [(0,), *((place,) for place in range(1, 8))]


def test_kernels_that_hide_their_counters_keep_the_memset_right_before_them():
    assert launches(memset(POINTER), kernel("nvjet_sm90_tst_128x256")) == [(0, 1)]
    assert launches(memset(POINTER), kernel("elementwise")) == [(0,), (1,)]


def test_two_memsets_of_a_kernel_come_with_it_in_order():
    found = [memset(POINTER), memset(OTHER, 2048), kernel(words=[OTHER, POINTER])]
    assert launches(*found) == [(0, 1, 2)]


def test_a_small_copy_prepares_a_kernel_and_a_large_one_is_work():
    small, large = (Node("copy", "copy", address=POINTER, byte=byte) for byte in (64, 1 << 20))
    assert launches(small, kernel(words=[POINTER])) == [(0, 1)]
    assert launches(large, kernel(words=[POINTER])) == [(0,), (1,)]


def test_a_run_of_cub_is_one_launch_and_a_workspace_goes_with_what_uses_it():
    sort = "void cub::DeviceRadixSortOnesweep"
    assert launches(kernel(), kernel(sort), memset(POINTER), kernel(sort, [POINTER]), kernel()) == [
        (0,),
        (1, 2, 3),
        (4,),
    ]
    assert launches(kernel("x::init_device_workspace_kernel"), kernel("wgrad"), kernel("wgrad")) == [(0, 1), (2,)]
    # a grouped product reads the addresses of its factors from what the kernel before it wrote
    prepares, product = kernel("at::cuda::detail::prepare_grouped_gemm_data<float>(int*)"), kernel("_ZN7cutlass")
    assert launches(prepares, product, kernel(), prepares, product) == [(0, 1), (2,), (3, 4)]


def test_what_failed_alone_is_joined_with_what_comes_before():
    first, second = kernel("first"), kernel("second", grid=(7, 1, 1))
    assert launches(first, second, joined={grouping.kind_of(second)}) == [(0, 1)]
    assert launches(first, kernel("second"), joined={grouping.kind_of(second)}) == [(0,), (1,)]


@pytest.mark.parametrize(
    ("kind", "said"),
    [(3, "host node"), (13, "conditional node"), (10, "allocates memory"), (4, "child graph"), (99, "type 99")],
)
def test_a_node_that_cannot_be_run_by_itself_refuses_the_step_in_one_line(kind, said):
    with pytest.raises(InputError, match=said):
        nodes.from_graph([{"type": 5}, {"type": kind}], [])


def test_branches_are_counted():
    chain = [kernel(), kernel(after=(0,)), kernel(after=(1,))]
    fork = [kernel(), kernel(after=(0,)), kernel(after=(0,)), kernel(after=(1, 2))]
    assert [nodes.most_unordered(each) for each in ([], chain, fork)] == [0, 1, 2]


def test_node_lists_are_read_as_they_were_written(recorded):
    assert nodes.from_json(nodes.to_json(recorded.nodes)) == recorded.nodes


def test_every_recorded_node_is_in_one_launch_and_every_launch_in_one_class(recorded, outline_of):
    found = outline_of(recorded)
    assert sorted(place for launch in found.launches for place in launch.nodes) == list(range(len(recorded.nodes)))
    assert sorted(member for each in found.classes for member in each) == list(range(len(found.launches)))


def test_classes_of_recorded_steps_take_the_same_time_in_the_step(recorded, outline_of):
    found = outline_of(recorded)
    for members in found.classes:
        times = [found.times_us[member] for member in members]
        assert max(times) <= 1.25 ** len(times) * min(times) + 2.0 * len(times)


def test_the_recorded_transformer_groups_as_it_was_seen(recording, outline_of):
    found = outline_of(recording("gpt_eager"))
    assert (len(found.nodes), len(found.launches), len(found.classes)) == (167, 113, 60)
    sort = [launch for launch in found.launches if "RadixSort" in found.functions[launch.main]]
    assert len(sort) == 1 and len(sort[0].nodes) == 20
    adam = [each for each in found.classes if "FusedAdam" in found.functions[found.launches[each[0]].main]]
    assert sum(map(len, adam)) == 15 and len(adam) <= 3


def test_every_recorded_persistent_product_has_its_memset(recorded, outline_of):
    found = outline_of(recorded)
    owned = Counter(
        len(launch.nodes) > 1 for launch in found.launches if found.functions[launch.main].startswith("nvjet")
    )
    memsets = [node for node in recorded.nodes if node.kind == "memset"]
    alone = [launch for launch in found.launches if recorded.nodes[launch.main].kind == "memset"]
    assert not memsets or len(alone) <= 0.05 * len(memsets)
    assert owned[True] >= owned[False]
