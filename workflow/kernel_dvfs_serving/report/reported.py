"""What is reported about DynamoLLM (Stojkovic et al., arXiv 2408.00741v1 and HPCA 2025): the two versions disagree.

Taken from the arXiv v1 abstract and from notes of third parties that say they checked the text; the paper's own was
not at hand. Changes in percent: negative is saved.
"""

V1, V2 = "arXiv v1", "HPCA 2025"
ENERGY = {V1: -53.0, V2: -52.0}
CARBON = {V1: -38.0, V2: -38.0}
COST = {V1: -61.0, V2: -61.0}
# against SinglePool
BY_LOAD = {V1: {"low": -51.0, "medium": -40.0, "high": -23.4}, V2: {"low": -57.0, "medium": -42.0, "high": -15.0}}
# one knob alone; the reference system is not stated
BY_KNOB = {"clocks": -19.0, "degrees": -7.0, "instances": -4.1}
# 40 % of answers mispredicted: energy, TTFT
MISPREDICTION = {"energy": 13.0, "ttft": 7.3}
DAY_CONVERSATION = -42.0
WEEK = {"conversation": -47.0, "coding": -56.0}
# TTFT P99, TBT P99, TTFT P50, TBT P50, percent change on the one-day conversation trace
LATENCY = {"TTFT P99": -5.3, "TBT P99": -11.1, "TTFT P50": 11.4, "TBT P50": 7.6}
SERVERS = -38.5
