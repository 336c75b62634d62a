"""Who sets the clocks: NVML ourselves, or something with more rights that the site offers. docs/cluster.md

Reading needs no right, so whatever sets a clock, NVML tells what came of it: every way is verified by the same means.
"""
