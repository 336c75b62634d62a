"""Figures of the Perseus paper (Chung et al., SOSP 2024) and its artifact, as data. No measurement here is ours.

Reductions of energy as they are printed, positive; tables show them as changes, negative = saved (kernel_dvfs.change).

Tables 3 and 4 were measured on testbeds that cannot be emulated from clocks alone: our tables show them as "paper".
Table 6 and Figure 7 are emulations from measured stage profiles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

SOURCE = "paper (SOSP'24)"
# computed from the raw measurements of its artifact, not printed by it
DERIVED = "paper's artifact"
# the rest of a table's column `source`
OURS = "ours"


def whose(frame: pd.DataFrame, subject: str) -> pd.DataFrame:
    """Return a table that has the paper's rows with a column `gpu`: `subject` in ours, who published them in others."""
    if "source" not in frame:
        return frame
    return frame.assign(gpu=[subject if source == OURS else f"{source}, not ours" for source in frame.source])


# Table 3: (GPUs, model, Perseus and EnvPipe: energy reduction and slowdown in percent, base time s, base energy J)
NO_STRAGGLER = (
    ("A100 PCIe, 4 stages", "GPT-3 XL 1.3B (8x128)", (13.2, 0.1), (8.8, 0.1), 60.10, 66955),
    ("A100 PCIe, 4 stages", "Bloom 3B (4x128)", (11.7, 0.2), (8.9, 0.2), 61.55, 68580),
    ("A100 PCIe, 4 stages", "BERT 1.3B (8x32)", (12.9, 0.5), (8.0, 0.0), 6.35, 6819),
    ("A100 PCIe, 4 stages", "T5 3B (4x32)", (10.6, 1.3), (7.4, 3.4), 9.24, 10181),
    ("A100 PCIe, 4 stages", "WRN101_8 1.5B (64x24)", (3.2, 2.3), (3.7, 4.1), 11.68, 12836),
    ("A40, 8 stages", "GPT-3 2.7B (4x256)", (21.1, 0.2), (21.7, 5.6), 150.74, 314315),
    ("A40, 8 stages", "Bloom 3B (4x128)", (22.4, 0.0), (19.9, 0.0), 81.05, 160991),
    ("A40, 8 stages", "BERT 1.3B (8x32)", (15.7, 0.0), (16.5, 9.7), 7.96, 14875),
    ("A40, 8 stages", "T5 3B (4x32)", (28.5, 0.0), (19.3, 0.0), 25.05, 32316),
    ("A40, 8 stages", "WRN101_8 1.5B (32x48)", (20.4, 0.2), (16.5, 0.5), 15.69, 31941),
)

# Zeus with per-stage power limits of least energy, on the same testbeds (computed from the artifact's files)
ZEUS_PER_STAGE = (
    (11.2, 1.4),
    (9.3, 16.5),
    (10.1, 13.4),
    (12.1, 7.4),
    (5.2, 18.1),
    (16.5, 25.1),
    (10.6, 34.3),
    (2.1, 55.8),
    (17.9, 5.3),
    (17.9, 14.3),
)

# Table 4: percent saved at T'/T, Perseus then EnvPipe
STRAGGLER_RATIOS = (1.05, 1.1, 1.2, 1.3, 1.4, 1.5)
STRAGGLER = (
    ("A100 GPT-3 XL", (14.7, 15.9, 15.5, 15.0, 14.6, 14.3), (8.7, 8.5, 8.3, 8.1, 7.9, 7.7)),
    ("A100 Bloom", (13.6, 15.6, 15.2, 14.7, 14.3, 14.0), (8.8, 8.7, 8.4, 8.2, 8.0, 7.8)),
    ("A100 BERT", (14.9, 16.9, 16.4, 15.9, 15.5, 15.0), (7.9, 7.8, 7.5, 7.3, 7.1, 6.9)),
    ("A100 T5", (15.3, 18.0, 17.9, 17.4, 16.9, 16.5), (8.4, 8.2, 8.0, 7.8, 7.6, 7.4)),
    ("A100 WRN", (9.4, 12.7, 12.6, 12.3, 12.0, 11.6), (4.9, 4.8, 4.7, 4.5, 4.4, 4.3)),
    ("A40 GPT-3", (24.5, 26.0, 25.9, 25.2, 24.6, 24.0), (22.9, 22.6, 22.0, 21.4, 20.9, 20.4)),
    ("A40 Bloom", (25.5, 26.4, 25.9, 25.2, 24.6, 24.0), (19.6, 19.3, 18.8, 18.3, 17.8, 17.4)),
    ("A40 BERT", (20.0, 22.6, 24.1, 23.4, 22.8, 22.2), (19.2, 18.9, 18.3, 17.8, 17.4, 16.9)),
    ("A40 T5", (27.9, 27.3, 26.2, 25.2, 24.3, 23.4), (18.4, 18.0, 17.3, 16.6, 16.0, 15.4)),
    ("A40 WRN", (24.3, 26.2, 26.3, 25.7, 25.0, 24.4), (16.4, 16.2, 15.8, 15.4, 15.0, 14.6)),
)

# Table 6, 8 tensor-parallel GPUs x 8 stages, 1,536 microbatches in all: percent saved, and the floored time of all-max
MICROBATCHES = (12, 24, 48, 96)
EMULATION = (
    ("GPT-3 175B A100", (15.20, 14.19, 13.62, 13.32), (14.08, 13.42, 13.07, 12.88), (28.18, 46.42, 82.90, 155.86)),
    ("GPT-3 175B A40", (11.81, 10.22, 9.34, 8.88), (11.12, 9.87, 9.18, 8.82), (75.44, 123.62, 219.98, 412.70)),
    ("Bloom 176B A100", (10.47, 7.06, 5.23, 4.28), (8.21, 4.53, 2.56, 1.54), (27.97, 45.85, 81.61, 153.13)),
    ("Bloom 176B A40", (6.97, 4.49, 3.12, 2.41), (6.09, 3.21, 1.63, 0.80), (71.28, 116.76, 207.72, 389.64)),
)

# Figure 7, T'/T = 1.2, 1,024 GPUs: percent saved of the cluster and of a pipeline that waits, Perseus then EnvPipe
BREAKDOWN = (
    ("GPT-3 175B A100", (27.01, 28.07), (11.98, 12.40)),
    ("Bloom 176B A100", (29.88, 31.85), (1.03, 1.48)),
    ("GPT-3 175B A40", (23.58, 24.69), (7.81, 8.38)),
    ("Bloom 176B A40", (21.09, 22.51), (0.16, 0.76)),
)
