"""The simulated engine against an H200's own run at default clocks, and a mixture of experts against hand counts."""

import statistics

import numpy as np
import pytest

from experiments.benchmarks import serving_steps
from kernel_dvfs_serving.models import MODELS, served, token_rows
from kernel_dvfs_serving.steps import StepModel


@pytest.fixture(scope="module")
def errors():
    """{version: [(row, time, energy)]} of whole decode steps, simulated over measured less 1."""
    found, ranks = {"before": [], "after": []}, {}
    for row in serving_steps.measured():
        if row["part"] == "step":
            for version, own in found.items():
                time_s, energy_j = serving_steps.simulated(row, version, ranks)
                own.append(
                    (row, 1e6 * time_s / float(row["time_us"]) - 1, 1e3 * energy_j / float(row["energy_mj"]) - 1)
                )
    return found


def test_whole_steps_that_took_no_part_in_the_fit_are_met(errors):
    """Within a tenth, but for one of 22: the small model at 512 sequences, where our own rotation kernel is slow."""
    after = errors["after"]
    missed = [row for row, time, energy in after if max(abs(time), abs(energy)) > 0.1]
    assert len(after) == 22
    assert [(row["layout"], row["tokens"]) for row in missed] == [("llama2-7b-tp1", "512")]
    for place, worst, mean in ((1, 0.13, 0.03), (2, 0.13, 0.04)):
        assert max(abs(each[place]) for each in after) < worst
        assert statistics.fmean(abs(each[place]) for each in after) < mean


def test_the_figures_of_an_a100_were_worse(errors):
    for place in (1, 2):
        before, after = (statistics.fmean(abs(each[place]) for each in errors[name]) for name in ("before", "after"))
        assert before > 3 * after


def test_the_report_of_the_benchmark_is_what_the_engine_gives_now(root):
    assert serving_steps.report() == (root / "experiments/results/serving_steps.txt").read_text()


# -- a mixture of experts ----------------------------------------------------------------------------------------------


def test_weights_of_mixtral_are_as_published():
    """46.7 and 141 billion parameters, of which a token uses 12.9 and 39 (Mistral AI)."""
    for name, billions, active in (("mixtral-8x7b", 46.7, 12.9), ("mixtral-8x22b", 141, 39)):
        model = served(name)
        assert model.weights_byte / 2e9 == pytest.approx(billions, rel=0.005)
        unused = model.layers * (model.experts - model.taken) * 3 * model.hidden * model.ffn
        assert model.weights_byte / 2e9 - unused / 1e9 == pytest.approx(active, rel=0.01)


def test_arithmetic_of_a_token_is_two_operations_a_weight_it_uses():
    model = served("mixtral-8x7b")
    flop = sum(row.launches * row.tensor_flop for row in token_rows(model, 1, 1))
    unused = model.layers * (model.experts - model.taken) * 3 * model.hidden * model.ffn
    # the embedding is looked up
    used = model.weights_byte / 2 - unused - model.vocab * model.hidden
    assert flop == pytest.approx(2 * used, rel=1e-3)


def test_experts_hit_are_those_of_random_routes():
    model, draw = served("mixtral-8x7b"), np.random.default_rng(1)
    for tokens in (1, 2, 5, 16):
        routes = draw.random((4000, tokens, model.experts)).argsort(axis=2)[:, :, : model.taken].reshape(4000, -1)
        mean = np.mean([len(set(own)) for own in routes.tolist()])
        assert model.experts_hit(tokens) == pytest.approx(mean, rel=0.02)
    assert all(model.experts_hit(tokens) == 1 for model in (MODELS["llama2-70b"],) for tokens in (1, 100))


def test_a_step_reads_the_experts_it_hits_and_no_more():
    model = served("mixtral-8x7b")
    expert_byte = 2 * 3 * model.hidden * model.ffn // 4
    for tokens in (1, 4, 64):
        grouped = [row for row in token_rows(model, 4, tokens) if row.family == "grouped_linear"]
        weights = sum(row.read_byte for row in grouped) - 2 * 2 * tokens * (model.hidden + model.ffn // 4)
        assert weights == pytest.approx(model.experts_hit(tokens) * expert_byte, rel=1e-9)
        assert all(row.rows_each == 2 * tokens / model.experts_hit(tokens) for row in grouped)


def test_one_sequence_decodes_on_few_experts_and_a_batch_on_all():
    """A step of one token costs far less than its share of weights would dense; from 16 on, hardly more by batch."""
    mixture = StepModel("h100_sxm", "mixtral-8x7b", 4, host_s=0, sequence_s=0)
    one, sixteen, many = (mixture.decode(batch, 512 * batch, 1980).time_s for batch in (1, 16, 64))
    assert one < 0.6 * sixteen and many < 1.15 * sixteen
    # prefill: all experts, and the arithmetic of 2 of 8
    prefill = mixture.prefill(4096, 1980).time_s
    flop = 2 * 12.9e9 * 4096 / 4
    assert 0.4 < flop / prefill / 700e12 < 1
