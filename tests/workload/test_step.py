"""step.json: a captured step is read as it was written, and what does not hold together is refused in one line."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_dvfs.workload import step as steps
from kernel_dvfs_clocks.errors import InputError

EXAMPLES = sorted((Path(__file__).parent / "steps").glob("*.json"))


@pytest.fixture
def small():
    return steps.read(Path(__file__).parent / "steps" / "hand_made.json")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_step_is_written_as_it_was_read(path, tmp_path):
    step = steps.read(path)
    steps.write(tmp_path / "again.json", step)
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_node_belongs_to_one_launch_and_every_launch_to_one_target(path):
    step = steps.read(path)
    nodes = sorted(node for target in step.targets for launch in step.nodes_of(target.id) for node in launch)
    assert nodes == list(range(len(step.nodes)))
    assert (
        sorted(node for name in step.sections for node in step.section_nodes(name))
        == nodes
        == step.section_nodes("step")
    )
    for target in step.targets:
        assert all(len(launch) == 1 + len(target.own) for launch in step.nodes_of(target.id))


def test_a_launch_holds_the_memset_that_prepares_it(small):
    assert small.nodes_of("nvjet_linear_forward") == [[0, 1], [3, 4]]


def test_what_cannot_be_repeated_is_left_at_auto_and_missing_from_the_coverage(small):
    assert [target.id for target in small.left_at_auto] == ["embedding_sort"]
    assert small.coverage == pytest.approx(1 - 9.0 / small.time_us)


def test_passes_are_the_sections_and_the_whole_step_launch_by_launch(small):
    assert list(small.passes) == ["forward", "backward", "optimiser", "step"]
    assert [name for name, _ in small.passes["forward"]] == ["nvjet_linear_forward", "gelu_forward"] * 2
    assert sum(len(small.passes[name]) for name in small.sections) == len(small.passes["step"])


def test_a_section_by_difference_is_a_pass_and_one_of_neither_way_is_none(small):
    step = replace(small, by_difference={"backward": "it overwrites"}, not_repeated={"forward": "it hung"})
    assert list(step.passes) == ["backward", "optimiser", "step"]
    before, both = step.beginnings("backward")
    assert before == small.section_nodes("forward") and both == before + small.section_nodes("backward")


def test_a_pass_with_a_host_node_is_left_out(small):
    host = replace(small.targets[4], kind="other", function="host")
    step = replace(small, targets=(*small.targets[:4], host, small.targets[5]))
    assert list(step.passes) == ["forward", "optimiser"]


def test_the_checksum_tells_shapes_and_order_apart_and_nothing_else():
    nodes = [("kernel", "gemm", [132, 1, 1]), ("memset", "memset", [4])]
    assert steps.checksum(nodes) == steps.checksum([tuple(node) for node in nodes])
    assert steps.checksum(nodes) != steps.checksum(nodes[::-1])
    assert steps.checksum(nodes) != steps.checksum([("kernel", "gemm", [264, 1, 1]), nodes[1]])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda content: content.pop("targets"), "step.json: targets is missing; capture it again"),
        (lambda content: content["targets"][0].pop("id"), "targets[0].id is missing"),
        (
            lambda content: content["targets"][0].update(id="../x"),
            "targets[0].id is '../x', expected a name of lower-case",
        ),
        (lambda content: content["targets"][1].update(id=content["targets"][0]["id"]), "appears twice"),
        (lambda content: content["targets"][0].update(grid=[1, 2]), "targets[0].grid is [1, 2], expected a list of 3"),
        (
            lambda content: content["targets"][0].update(grid=[1, 2, -3]),
            "targets[0].grid[2] is -3, expected a",
        ),
        (lambda content: content["targets"][0].update(launches=3), "3 launches, and order holds 2"),
        (
            lambda content: content["targets"][0].update(time_us="fast"),
            "targets[0].time_us is 'fast', expected a",
        ),
        (lambda content: content["targets"][0].update(section="elsewhere"), "elsewhere"),
        (
            lambda content: content["targets"][0].update(repeatable="perhaps"),
            "'perhaps', expected one of yes",
        ),
        (lambda content: content["targets"][4].update(reason=""), "without a reason"),
        (lambda content: content["order"].append(77), "order holds 77"),
        (lambda content: content["order"].append(None), "order[12] is None, expected a whole number >= 0"),
        (lambda content: content["nodes"].pop(), "has no node"),
        (lambda content: content["whole"].update(overlapped=["nobody"]), "nobody"),
        (lambda content: content.update(by_difference={"sideways": "why"}), "no section in one piece"),
        (lambda content: content.update(checksum="x"), "checksum is 'x', expected 12 hex digits"),
        (
            lambda content: content.update(name="a/b"),
            "name is 'a/b', expected letters, digits, dots, hyphens and underscores",
        ),
        (lambda content: content.update(schema="other"), "not a kernel-dvfs/step/1 file"),
        *(
            (
                lambda content, section=section: (
                    content["sections"].__setitem__(0, section),
                    [each.update(section=section) for each in content["targets"] if each["section"] == "forward"],
                ),
                "expected a name of lower-case letters, digits and underscores",
            )
            for section in ("../../..", "a/b", "a\nb", "a\n", "$(reboot)", "a" * 61, "", ".", "_", "\u0661", "\x1b[2J")
        ),
        (lambda content: content.update(surprise=1), "surprise is no field of it; expected name, source"),
        (
            lambda content: (
                content["sections"].__setitem__(0, "paced_loss"),
                [each.update(section="paced_loss") for each in content["targets"] if each["section"] == "forward"],
            ),
            "section 'paced_loss' begins with 'paced_', which means a kernel with rests",
        ),
    ],
)
def test_a_damaged_file_is_refused_in_one_line_with_what_to_do(small, tmp_path, damage, said):
    path = tmp_path / "step.json"
    steps.write(path, small)
    content = json.loads(path.read_text())
    damage(content)
    path.write_text(json.dumps(content))
    with pytest.raises(InputError) as refused:
        steps.read(path)
    line = str(refused.value)
    assert said in line and str(path) in line and "kernel-dvfs capture" in line and "\n" not in line


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="capture it again: kernel-dvfs capture"):
        steps.read(tmp_path / "step.json")
