"""What each table and figure is, for a reader who has not read the paper. Of names not listed: the name itself."""

from collections import namedtuple

Caption = namedtuple("Caption", "title text")

_CAPTIONS = {
    "validation": Caption(
        "The chosen clocks, measured again",
        "Claimed is what the measurements that chose the clocks promised. Fresh is what new measurements found: each "
        "repeat runs every kernel at auto, chosen, chosen, auto. Trust fresh: a choice among noisy points picks the "
        "lucky ones.",
    ),
    "headline": Caption(
        "The schedules of the headline, measured again",
        "Each schedule claimed beside fresh, with 95 % intervals over repeats. The verdict is on its time limit: "
        "within, over, or ambiguous where the interval holds the limit.",
    ),
    "strategies": Caption(
        "Ways of choosing (Table 2 of the paper)",
        "One clock pair for all, each by itself (local) or all together under one limit on the total time (global); "
        "for passes and for kernels. Waste: least energy at no loss of time. EDP: least energy times time, which gives "
        "time away. Energy: least energy at any time. Waste left (Eq. 2) could still be saved at that "
        "speed.",
    ),
    "relaxed": Caption(
        "Energy against tolerated slowdown, as numbers",
        "The least energy at each slowdown that is allowed; the numbers of Figure 6.",
    ),
    "kernel_clocks": Caption(
        "Best clocks of each kernel (Table 1 of the paper)",
        "The strict schedule: all kernels together lose no time, so one that loses is paid for by one that gains. "
        "Share: of an iteration at auto clocks, all launches counted. Part of the saving: what the kernel adds to the "
        "total, in percent of the iteration's energy, by the claimed change. Ran at: what the GPU made of the request.",
    ),
    "baseline": Caption(
        "Every kernel and pass at auto clocks",
        "Per launch, clocks left to the GPU: time, energy, power, the clocks that it ran, the share of time under its "
        "power cap, and the drift over the run.",
    ),
    "data_parallelism": Caption(
        "The schedule at other batches",
        "The same clocks with fewer sequences per GPU, beside a choice made anew there. Brackets: 95 % interval over "
        "fresh repeats. Cost of carrying over: what not choosing anew costs, in points.",
    ),
    "tensor_parallelism": Caption(
        "The schedule at other tensor-parallel degrees",
        "The same clocks on one rank of a larger tensor-parallel group, without communication, beside a choice made "
        "anew there. Brackets: 95 % interval over fresh repeats.",
    ),
    "tensor_energy": Caption(
        "The headline at other tensor-core energies",
        "No measurement fixes the energy of a tensor-core operation of this GPU, so the study is repeated at the least "
        "and the most that the data allow.",
    ),
    "omitted_pairs": Caption("Clock pairs that were left out", "Pairs of the grid that the GPU cannot run, and why."),
    "claims": Caption(
        "The paper's claims, checked here",
        "Each claim of arXiv 2601.08539 with its value, what this study found, a computed verdict and the reason.",
    ),
    "fig2_desirability": Caption(
        "Figure 2. What EDP and waste reward",
        "By definition, before any measurement: EDP lets a loss of time be paid with energy, waste does not.",
    ),
    "fig3_forward_pass": Caption(
        "Figure 3. The forward pass at each clock pair",
        "Time and energy against auto clocks. In the blue square no time is lost and energy is saved.",
    ),
    "fig4_backward_pass": Caption(
        "Figure 4. The backward pass at each clock pair",
        "Time and energy against auto clocks. In the blue square no time is lost and energy is saved.",
    ),
    "fig5_kernels": Caption(
        "Figure 5. Where time and energy go",
        "One launch of each kernel at auto clocks.",
    ),
    "fig6_relaxed_waste": Caption(
        "Figure 6. Energy saved against tolerated slowdown",
        "Choosing for all kernels together (global) beats choosing for each by itself (local). Claimed savings.",
    ),
    "fig7_data_parallelism": Caption(
        "Figure 7. The schedule at other batches",
        "Fresh repeats with 95 % intervals; where they leave zero on the energy axis, the clocks still pay there.",
    ),
    "fig8_tensor_parallelism": Caption(
        "Figure 8. The schedule at other tensor-parallel degrees",
        "Fresh repeats with 95 % intervals, one rank, no communication.",
    ),
    "gpus": Caption(
        "GPUs and workloads side by side",
        "Changes of an iteration against the GPU's own auto clocks. Claimed: by the data that chose; fresh: measured "
        "again, with the 95 % interval. EDP trades time away, so compare its energy with its time.",
    ),
    "specimens": Caption(
        "Specimens of one model",
        "GPUs of the same name under different UUIDs: how far two boards that were sold as equal are apart.",
    ),
}


def caption(name: str) -> Caption:
    """The caption of a table or figure by its file's stem."""
    return _CAPTIONS.get(name) or Caption(name.replace("_", " ").capitalize(), "")
