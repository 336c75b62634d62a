"""The page of a training that was tuned: what it says of a pair that is kept, of auto, and of a dry run."""

import pytest

from kernel_dvfs_deploy.tune_page import make

FOUND = {"slack_percent": 1.0, "pair": "auto-auto", "why": "", "dry_run": False, "steps": 812, "gpu": "A", "gpus": 1}
FOUND |= {"auto_step_s": 0.41, "auto_step_j": 120.5, "scatter_percent": 3.2}
KEPT = {"pair": "1500-auto", "arguments": "--pair 1500,auto", "step_j": 101.5, "rounds": 7}
KEPT |= {f"{what}_change{most}_percent": -2.5 for what in ("energy", "time") for most in ("", "_at_most")}


@pytest.mark.parametrize(
    ("more", "says", "not_says"),
    [
        ({}, "Auto is kept. No pair was shown to save energy within", "dry run"),
        ({"why": "steps became slower"}, "Auto is kept: steps became slower.", "dry run"),
        ({"dry_run": True}, "A dry run: auto was measured, nothing was set.", "Auto is kept"),
        (KEPT, "kernel-dvfs apply --pair 1500,auto -- COMMAND", "Auto is kept"),
    ],
)
def test_the_page_of_a_tuned_training_says_what_came_of_it(more, says, not_says):
    page = make(FOUND | more)
    assert says in page and not_says not in page
