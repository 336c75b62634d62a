"""Studies that go beyond the paper, each on simulated GPUs whose truth is known."""
