"""Servers of 8 GPUs, and the replicas of the model that they hold."""

from kernel_dvfs.serving.instance import Instance
from kernel_dvfs.serving.resharding import SERVER_GPUS

OFF, STARTING, ON, SWITCHING, DRAINING = "off", "starting", "on", "switching", "draining"


class Replica:
    """An instance in a pool: what routing and controllers know about it."""

    __slots__ = (
        "arrived",
        "capacity",
        "clock",
        "held_until_s",
        "instance",
        "outstanding",
        "processed",
        "server",
        "serving",
        "stage",
        "ticket",
        "tp",
        "watched",
    )

    def __init__(self, server, tp: int, clock, instance: Instance, capacity: float):
        self.server = server
        self.tp = tp
        self.clock = clock  # last asked for
        self.instance = instance
        self.capacity = capacity  # tokens/s at the highest clock, of its pool's class
        self.serving = True
        self.ticket = 0  # of its event on the agenda: older ones are void
        self.outstanding = 0.0  # expected tokens of the requests it holds
        self.arrived = 0.0  # expected tokens routed to it since the clock was last set
        self.processed = 0
        self.stage = 0  # of the emergency ladder
        self.watched = False
        self.held_until_s = 0.0  # highest clock until then

    @property
    def relative_load(self) -> float:
        """Tokens it holds, of those it may carry in a second."""
        return self.outstanding / self.capacity


class Server:
    """8 GPUs that are off, starting, on, being divided anew, or giving up their last requests."""

    __slots__ = ("layout", "number", "parked_since_s", "pool", "replicas", "since_s", "state", "ticket")

    def __init__(self, number: int):
        self.number = number
        self.state = OFF
        self.pool = None
        self.layout = ()
        self.replicas = []
        self.parked_since_s = 0.0
        self.since_s = None  # when it was taken
        self.ticket = 0

    @property
    def parked(self) -> int:
        """GPUs without an instance, of a server that is on."""
        return SERVER_GPUS - sum(self.layout) if self.state in (ON, DRAINING) else 0

    @property
    def empty(self) -> bool:
        """Whether it holds no request."""
        return all(replica.instance.empty for replica in self.replicas)
