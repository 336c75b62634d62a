"""Which launches can be repeated alone: yes, restored, no; on a captured step without a GPU."""

import pytest

from kernel_dvfs_step import grouping, memory, trial
from kernel_dvfs_step.memory import CHUNK_BYTE
from kernel_dvfs_step.nodes import Node
from kernel_dvfs_step.trial import Tried

AT = 2 * CHUNK_BYTE


def kernel(name, **more):
    return Node("kernel", name, **more)


def writes(value, at=AT):
    def effect(memory):
        memory[at] = value

    return effect


def adds_to(at):
    def effect(memory):
        memory[at] = (memory[at] + 1) % 256

    return effect


def walk(living, limit, times=None, failed=None, known=None, neighbours=0):
    launches = grouping.launches(living.nodes, [node.function for node in living.nodes])
    classes = grouping.classes(living.nodes, launches, [], ["forward"] * len(launches), [None] * len(launches))
    reported = {}
    tried = trial.walk(
        *(living, launches, classes, times or [None] * len(launches), limit, failed or {}, known or {}),
        lambda first, result: reported.update({first: result}),
        neighbours,
    )
    return tried, reported


def test_a_launch_that_leaves_the_same_twice_is_repeatable_and_one_that_adds_is_restored(fake_living, no_limit):
    living = fake_living(
        [kernel("writes"), kernel("adds"), kernel("state")], [writes(7), adds_to(AT), adds_to(5)], [10.0] * 3
    )
    tried, reported = walk(living, no_limit)
    assert [each.repeatable for each in tried] == ["yes", "restored", "restored"]
    assert [each.moved_byte for each in tried] == [0, CHUNK_BYTE, CHUNK_BYTE]
    assert tried[0].alone_us == pytest.approx(10.0)
    assert list(reported) == [0, 1, 2]


def test_each_class_meets_the_data_that_it_meets_in_the_step(fake_living, no_limit):
    seen = []
    effects = [writes(1), writes(2), writes(9), lambda memory: seen.append(memory[AT])]
    living = fake_living([kernel(name) for name in "abcd"], effects, [10.0] * 4)
    early = []
    living._effects[1] = lambda memory: early.append(memory[AT])
    walk(living, no_limit)
    assert set(seen) == {9} and set(early) == {1}, "what a node meets, not what a later one leaves there"


def test_the_state_is_put_back_bit_for_bit(fake_living, no_limit):
    living = fake_living([kernel("a")], [adds_to(3)], [10.0])
    walk(living, no_limit)
    living.memory.check_restored()
    assert living.device.memory[3] == 0


def test_members_of_a_class_take_turns(fake_living, no_limit):
    order = []
    effects = [lambda memory, number=number: order.append(number) for number in range(6)]
    living = fake_living([kernel("same")] * 6, effects, [5.0] * 6)
    (tried,), _ = walk(living, no_limit)
    assert tried.rotated == trial.ROTATED and tried.alone_us == pytest.approx(5.0)
    # the ones before the last of those that take turns have run, so that it meets its data
    assert order[:7] == [0, 1, 2, 0, 1, 2, 3]


@pytest.mark.parametrize(("name", "is_lost"), [("index_elementwise_kernel", False), ("reads_as_told", True)])
def test_a_reader_of_integers_never_reads_them_where_the_pool_gave_them_away(fake_living, no_limit, name, is_lost):
    def indices(number):
        def effect(memory):
            memory[AT + number] = 3

        return effect

    def reads(number):
        def effect(memory):
            assert memory[AT + number] == 3, "an index out of range"

        return effect

    # two micro-batches: the indices of the first are another tensor by the time that the second ones are read
    found = [kernel("to_int"), kernel(name), kernel("writes_over"), kernel("to_int_2"), kernel(name)]
    living = fake_living(found, [indices(0), reads(0), writes(200), indices(1), reads(1)], [5.0] * 5)
    if is_lost:
        with pytest.raises(AssertionError, match="an index out of range"):
            walk(living, no_limit)
        return
    tried, _ = walk(living, no_limit)
    assert [(each.rotated, each.repeatable) for each in tried] == [(1, "yes")] * 4


def test_which_kernels_read_integers_is_told_by_recorded_names(recording):
    step = recording("gpt_eager")
    found = {name for name in step.functions if trial.most_turns([name]) == 1}
    told = ("nll_loss_forward", "nll_loss_backward", "embedding_backward", "vectorized_gather", "sum_and_scatter")
    assert all(any(each in name for name in found) for each in told)
    assert not any("nvjet" in name or "flash" in name or "with_index" in name for name in found)
    # convolutions over indexed tiles take turns
    assert not any("xmma" in name for name in recording("conv").functions if trial.most_turns([name]) == 1)
    assert trial.most_turns(["void reduce<float, unsigned int IndexType>(index_t)"]) == trial.ROTATED
    # handed by address: the segments of an embedding's backward
    segments = "void at::native::compute_num_of_partial_segments<long>(long const*, long const*, long*)"
    assert trial.most_turns([segments]) == 1
    assert trial.most_turns(["void add<float, long>(float const*, long)"]) == trial.ROTATED


@pytest.mark.parametrize(
    ("in_step_us", "repeatable"), [(10.0, "yes"), (35.0, "yes"), (45.0, "no"), (6.0, "yes"), (4.0, "no"), (None, "yes")]
)
def test_a_launch_that_takes_another_time_alone_does_other_work(fake_living, no_limit, in_step_us, repeatable):
    living = fake_living([kernel("nvjet")], [writes(1)], [10.0])
    (tried,), _ = walk(living, no_limit, times=[in_step_us])
    assert tried.repeatable == repeatable
    if repeatable == "no":
        assert "alone it takes 10.0 us" in tried.reason and "other work" in tried.reason


def test_what_neighbours_on_the_gpu_take_is_not_blamed_on_a_kernel(fake_living, no_limit):
    """Two of three launches of a graph meet a turn of another process, and take four times as long."""

    class Crowded(fake_living):
        timed = 0

        def loop(self, places, repeat=1, keep_edges=False):
            made = super().loop(places, repeat, keep_edges)
            own = made.time

            def time(count=1):
                self.timed += 1
                return own(count) * (1 if self.timed % 3 == 0 else 4)

            made.time = time
            return made

    (blamed,), _ = walk(Crowded([kernel("nvjet")], [writes(1)], [10.0]), no_limit, times=[10.0])
    assert blamed.repeatable == "no", "where nobody is known to share it"
    (tried,), _ = walk(Crowded([kernel("nvjet")], [writes(1)], [10.0]), no_limit, times=[10.0], neighbours=2)
    assert (tried.repeatable, tried.alone_us) == ("yes", pytest.approx(10.0))
    # a kernel that does other work alone is found all the same, and neighbours are named
    (other,), _ = walk(Crowded([kernel("nvjet")], [writes(1)], [10.0]), no_limit, times=[45.0], neighbours=2)
    assert other.repeatable == "no" and "2 other process(es) on the GPU" in other.reason


def test_microseconds_of_launching_are_no_other_work(fake_living, no_limit):
    (tried,), _ = walk(fake_living([kernel("tiny")], [writes(1)], [3.5]), no_limit, times=[1.0])
    assert tried.repeatable == "yes"


def test_copies_from_the_host_stay_at_auto(fake_living, no_limit):
    node = Node("copy", "copy", address=AT, byte=1 << 20, is_host=True)
    (tried,), _ = walk(fake_living([node], [writes(1)], [10.0]), no_limit)
    assert tried.repeatable == "no" and "host" in tried.reason


def test_collectives_stay_at_auto(fake_living, no_limit):
    node = Node("kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    (tried,), _ = walk(fake_living([node], [writes(1)], [10.0]), no_limit)
    assert tried.repeatable == "no" and "NCCL" in tried.reason


def test_what_failed_is_tried_without_turns_then_left(fake_living, no_limit):
    living = fake_living([kernel("same")] * 4, [writes(1)] * 4, [5.0] * 4)
    for errors, rotated, repeatable in ((1, 1, "yes"), (2, 1, "yes"), (3, 1, "no")):
        (tried,), _ = walk(living, no_limit, failed={0: ["it hung"] * errors})
        assert (tried.rotated, tried.repeatable) == (rotated, repeatable)
    assert tried.reason == "it hung"


def test_what_is_known_from_an_earlier_process_is_not_tried_again(fake_living, no_limit):
    def never(memory):
        raise AssertionError("was run")

    known = Tried(1.5, 1, "yes", "", 0)
    tried, reported = walk(fake_living([kernel("a")], [never], [10.0]), no_limit, known={0: known})
    assert tried == [known] and not reported


def test_a_limit_is_asked_for_around_each_trial(fake_living):
    asked = []

    def limit(first, seconds):
        asked.append((first, seconds))
        raise TimeoutError

    with pytest.raises(TimeoutError):
        walk(fake_living([kernel("hangs")], [writes(1)], [10.0]), limit)
    assert asked == [(0, trial.LIMIT_S)]


# --- memory -----------------------------------------------------------------------------------------------------------


class Device:
    def __init__(self):
        self.memory = bytearray(range(256)) * 16

    def copy(self, target, source, byte):
        self.memory[target : target + byte] = self.memory[source : source + byte]

    def hashes(self, ranges, chunk_byte):
        contents = [bytes(self.memory[address : address + byte]) for address, byte in ranges]
        return b"".join((hash(each) & (2**64 - 1)).to_bytes(8, "little") for each in contents)

    def synchronize(self):
        pass


def room_for(most, at):
    left = [most, at]

    def room(byte):
        if byte > left[0]:
            return None
        left[0] -= byte
        left[1] += byte
        return memory.Room(left[1] - byte, None)

    return room


STATE = [memory.MemoryRange(0, 64), memory.MemoryRange(64, 256), memory.MemoryRange(320, 16)]


def saved(on_device, on_host):
    device = Device()
    segments = [memory.MemoryRange(0, 1024)]
    return device, memory.Memory(device, segments, STATE, room_for(on_device, 2048), room_for(on_host, 3072))


def test_state_goes_to_the_device_then_to_the_host():
    assert saved(1000, 0)[1].state == memory.SavedMemory(336, 336, "device", "")
    assert saved(100, 300)[1].state == memory.SavedMemory(336, 336, "host", "")


def test_where_no_memory_is_left_the_largest_blocks_are_left_out_and_that_is_said():
    device, held = saved(0, 100)
    assert (held.state.saved_byte, held.state.byte) == (80, 336)
    assert held.state.left_out == "no memory was left for 1 of 3 blocks, the largest ones"
    device.memory[10], device.memory[100] = 0, 0
    held.restore()
    assert (device.memory[10], device.memory[100]) == (10, 0)


def test_a_state_that_cannot_be_put_back_is_an_error():
    device, held = saved(1000, 0)
    held.check_restored()
    device.memory[2048] ^= 1  # what was saved has been overwritten
    with pytest.raises(Exception, match="could not be put back bit for bit"):
        held.check_restored()


def test_saving_again_keeps_what_is_there_now():
    device, held = saved(1000, 0)
    device.memory[0] = 99
    held.save()
    device.memory[0] = 1
    held.check_restored()
    assert device.memory[0] == 99
    held.drop()
    device.memory[0] = 2
    held.restore()
    assert device.memory[0] == 2


def test_changed_chunks_are_counted():
    one, other = b"\1" * 8 + b"\2" * 8, b"\1" * 8 + b"\3" * 8
    assert memory.changed_byte(one, one) == 0 and memory.changed_byte(one, other) == memory.CHUNK_BYTE
