"""A captured step on a board of the fake NVML, in real time: what deploy.replay.Replay asks for, without CUDA.

A thread is the stream: it takes pieces and events in order, runs each launch at the clocks that the board really has,
and tells the board its power. `ran` notes of each launch that began: (kernel id, core MHz, memory MHz). Its memory is
one number that each launch changes: restored, saved and told apart like a real one's.
"""

import hashlib
import queue
import threading
import time

from kernel_dvfs.measurement.target import MeasurementTarget

_SLICE_S = 0.002


class SimulatedStep:
    """loads: simulated_load.SimulatedLoads. setup: of the step. slower: factor of all times, so that a step is long
    against what a thread of Python needs. forgets: whether a step in pieces leaves other bits (a broken backend)."""

    def __init__(self, loads, setup, record, slower=100.0, forgets=False):
        self.record, self._loads, self._slower, self._forgets = record, loads, slower, forgets
        self._kernels = {
            target.id: loads.prepare(setup, MeasurementTarget("kernel", target.id)) for target in record.measured
        }
        self._power = {
            name: [[load.power_w(c, m) for c in loads.core_mhz] for m in loads.mem_mhz]
            for name, load in self._kernels.items()
        }
        self.ran = []
        self._over_s = 0.0  # how much later than its end this thread saw the last launch end
        self._memory, self.saved = 0, None
        self._queue = queue.Queue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def piece(self, nodes):
        launches = sorted({self.record.nodes[node] for node in nodes})
        assert [node for node, own in enumerate(self.record.nodes) if own in launches] == list(nodes)
        return _Piece(self._queue, [self.record.targets[self.record.order[launch]].id for launch in launches])

    def whole(self):
        return _Piece(self._queue, [self.record.targets[place].id for place in self.record.order], whole=True)

    def event(self):
        return _Event(self._queue)

    def synchronize(self):
        event = self.event()
        event.record()
        event.wait()

    def save(self):
        self.synchronize()
        self.saved = self._memory

    def restore(self):
        self.synchronize()
        if self.saved is not None:
            self._memory = self.saved

    def drop(self):
        self.saved = None

    def fingerprint(self):
        return (hashlib.sha256(str(self._memory).encode()).hexdigest(),) * 2

    def _run(self):
        while True:
            if self._queue.empty():
                self._over_s = 0.0
            item = self._queue.get()
            if isinstance(item, _Event):
                item.set()
                # like a GPU that has run dry
                if self._queue.empty():
                    self._loads.run(None)
                continue
            for name in item.names:
                self._launch(name)
                self._memory = hash((self._memory, name))
            self._memory += self._forgets and not item.whole

    def _launch(self, name):
        # what the schedule leaves at auto has no load of its own, and takes no time here
        load = self._kernels.get(name)
        if load is None:
            return
        self._loads.run(self._power[name])
        done, (_, _, core, mem) = 0.0, self._loads.now()
        self.ran.append((name, core, mem))
        # on a GPU a launch that is queued begins as the one before it ends, however late this thread wakes
        before = time.monotonic() - self._over_s
        while True:
            _, _, core, mem = self._loads.now()
            time_s, now = load.time_s(core, mem) * self._slower, time.monotonic()
            done += (now - before) / time_s
            before = now
            if done >= 1:
                break
            time.sleep(min(_SLICE_S, (1 - done) * time_s))
        self._over_s = (done - 1) * time_s


class _Piece:
    def __init__(self, stream, names, whole=False):
        self._stream, self.names, self.whole = stream, names, whole

    def run(self, count=1):
        for _ in range(count):
            self._stream.put(self)


class _Event(threading.Event):
    def __init__(self, stream):
        super().__init__()
        self._stream = stream

    def record(self):
        self._stream.put(self)

    def done(self):
        return self.is_set()
