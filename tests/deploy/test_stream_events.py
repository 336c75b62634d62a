"""Events of a real stream, seen by the player's thread while another one launches."""

import threading
import time

from kernel_dvfs_deploy.events import StreamEvents
from kernel_dvfs_deploy.replay import StepEvents


class Event:
    """An event that the GPU passes a while after it was recorded. name: done as the native layer, query as PyTorch."""

    def __init__(self, after_s):
        self._after_s, self._recorded_s = after_s, None

    def record(self):
        self._recorded_s = time.monotonic()

    def query(self):
        return time.monotonic() >= self._recorded_s + self._after_s


class NativeEvent(Event):
    done = Event.query
    query = None


def launch(events, iterations, count, gap_s):
    for _ in range(iterations):
        for number in range(count):
            events.reached(number)
            time.sleep(gap_s)


def test_the_player_sees_when_the_gpu_passes_what_another_thread_launched():
    for kind in (Event, NativeEvent):
        events = StreamEvents(lambda kind=kind: kind(0.02), {0, 2}, count=3)
        begin_s = time.monotonic()
        thread = threading.Thread(target=launch, args=(events, 2, 3, 0.005))
        thread.start()
        # boundaries go on from iteration to iteration: launch 2 of the second is the fifth after the first
        found = [events.wait(boundary, begin_s + 60) for boundary in (0, 2, 3, 5)]
        thread.join()
        assert all(each is not None for each in found) and found == sorted(found)
        assert found[0] >= begin_s + 0.02 and found[1] >= begin_s + 0.03
        assert events.passed_s(2) == found[1], "as it was seen first"


def test_what_is_never_launched_is_waited_for_only_so_long():
    events = StreamEvents(lambda: Event(0), {0}, count=3)
    began_s = time.monotonic()
    assert events.wait(0, began_s + 0.05) is None
    assert time.monotonic() >= began_s + 0.05


def test_events_are_made_only_where_the_player_wants_them():
    made = []
    events = StreamEvents(lambda: made.append(1) or Event(0), {1}, count=4)
    launch(events, 2, 4, 0)
    assert len(made) == 2


def test_a_sleeper_wakes_when_it_asked_to():
    events = StreamEvents(lambda: Event(0), set(), count=1)
    until_s = events.now_s() + 0.03
    events.sleep_until(until_s)
    assert events.now_s() >= until_s
    events.sleep_until(until_s - 1)  # gone by: no wait


def test_however_far_ahead_a_program_is_the_player_asks_after_the_next_event_alone():
    """Each look at an event holds up the thread that launches: a step in 32 pieces, ten steps ahead, has 320."""
    looks = []

    class Watched(Event):
        def query(self):
            looks.append(self)
            return super().query()

    events = StreamEvents(lambda: Watched(60), range(32), count=32)
    launch(events, 10, 32, 0)
    assert events.passed_s(0) is None
    assert len(looks) == 1


def test_a_program_far_ahead_of_the_gpu_loses_no_event_that_the_player_still_waits_for():
    events = StepEvents(lambda: Event(0.1), {0, 2}, count=3)
    for _ in range(5):  # all launched before the GPU has come to the first
        events.begin()
        for number in range(3):
            events.reached(number)
        events.launched()
    time.sleep(0.12)
    assert events.passed_s(0) is not None, "all others were seen to have passed as well"
    events.begin()
    for boundary in (2, 3, 5, 6, 8, 12):
        assert events.wait(boundary, time.monotonic() + 1) is not None
    assert events.passed_s(0) is None, "long past, and forgotten"
