"""The systems compared: which knobs each may turn. Definitions of the baselines are ours where sources are silent."""

from collections import namedtuple

System = namedtuple("System", "name pooled scale_instances scale_sharding scale_clock kernel_level")
System.__doc__ = """pooled: by class, else one pool of the largest configuration without an emergency ladder. The three
scales: instances (cluster manager), degrees (pool manager), clocks (instance manager). kernel_level: each kernel has
its own clock, the step times those of one clock."""

SYSTEMS = {
    each.name: each
    for each in (
        System("SinglePool", False, False, False, False, False),
        System("MultiPool", True, False, False, False, False),
        System("ScaleInst", True, True, False, False, False),
        System("ScaleShard", True, False, True, False, False),
        System("ScaleFreq", True, False, False, True, False),
        System("instances + degrees", True, True, True, False, False),
        System("instances + clocks", True, True, False, True, False),
        System("degrees + clocks", True, False, True, True, False),
        System("DynamoLLM", True, True, True, True, False),
        System("DynamoLLM, kernel clocks", True, True, True, True, True),
        System("SinglePool, kernel clocks", False, False, False, False, True),
    )
}
BASELINE = "SinglePool"
STATIC = "MultiPool"
# the baseline on as many servers as the trace's peak needs, no more
SIZED = "SinglePool, sized to the peak"
# the systems that the literature compares
COMPARED = ("SinglePool", "MultiPool", "ScaleInst", "ScaleShard", "ScaleFreq", "DynamoLLM")
KNOBS = ("instances", "degrees", "clocks")
# which knobs turn -> system: all subsets, so that the saving can be split between them
SUBSETS = {
    (): "MultiPool",
    ("instances",): "ScaleInst",
    ("degrees",): "ScaleShard",
    ("clocks",): "ScaleFreq",
    ("instances", "degrees"): "instances + degrees",
    ("instances", "clocks"): "instances + clocks",
    ("degrees", "clocks"): "degrees + clocks",
    ("instances", "degrees", "clocks"): "DynamoLLM",
}
