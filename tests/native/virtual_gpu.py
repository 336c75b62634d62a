"""A device on virtual time, on which what is queued runs one after the other, and the events of its queue."""

from cuda_signatures import stands_for


class Queue:
    """now_s: the host's clock. busy_until_s: when all that is queued has run. idle_s: what the device stood still."""

    def __init__(self):
        self.now_s = self.busy_until_s = 100.0
        self.idle_s = 0.0

    def run_us(self, us):
        if self.now_s > self.busy_until_s:
            self.idle_s += self.now_s - self.busy_until_s
            self.busy_until_s = self.now_s
        self.busy_until_s += 1e-6 * us

    def synchronize(self):
        self.now_s = max(self.now_s, self.busy_until_s)

    # of `cuda`

    def Event(self, gpu):
        return Event(gpu)


@stands_for("Event")
class Event:
    def __init__(self, gpu):
        self.gpu = gpu

    def record(self):
        self.at_s = self.gpu.busy_until_s

    def done(self):
        return self.gpu.now_s >= self.at_s - 1e-12

    def wait(self):
        self.gpu.now_s = max(self.gpu.now_s, self.at_s)

    def since_ms(self, earlier):
        return 1e3 * (self.at_s - earlier.at_s)
