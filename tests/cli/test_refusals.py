"""Input that a command cannot use is refused with one line, exit code 2 and no output file."""

import json

import pytest
from whole_schedule import whole_schedule

from kernel_dvfs.cli.main import main
from kernel_dvfs.measurement import record
from kernel_dvfs.measurement.setup import store
from kernel_dvfs.profile.store import COLUMNS, write_profile

SCHEDULE = whole_schedule(targets={"forward_gelu": {"core_mhz": 1470, "mem_mhz": "auto"}})


@pytest.fixture(scope="module")
def setup_path(setup_of, tmp_path_factory):
    setup = setup_of()
    return store(str(tmp_path_factory.mktemp("s")), setup.gpu, setup.workload, setup.targets, setup.measurement)


@pytest.fixture
def profile(tmp_path):
    """A profile of one kernel; half the clock takes longer and saves energy."""
    rows = [
        dict.fromkeys(COLUMNS)
        | {"study": "kernel", "target": "a", "launches_per_iteration": 1, "n": 1, "verdict": "ok"}
        | {"core_mhz": core, "is_baseline": core is None, "time_s": time, "energy_j": energy}
        for core, time, energy in ((None, 1.0, 100.0), (1470.0, 1.1, 80.0))
    ]
    path = tmp_path / "profile.parquet"
    columns = {name: [row[name] for row in rows] for name in COLUMNS}
    gpu = {"kind": "simulated", "name": "G", "slug": "g"}
    write_profile(path, columns, gpu, {"name": "w"}, ["core_mhz", "mem_mhz"])
    return path


# --- compare ---


def compare(setup_path, tmp_path, schedule, *more):
    (tmp_path / "s.json").write_text(json.dumps(schedule))
    words = ["measure", "compare", "--gpu", setup_path, "--schedule", tmp_path / "s.json"]
    return [*words, "-o", tmp_path / "c.json", *more]


def test_a_kernel_that_the_schedule_does_not_know_stays_at_auto(setup_path, tmp_path):
    words = compare(setup_path, tmp_path, SCHEDULE, "--target", "forward_fc_gemm", "--last", "1")
    assert main([str(word) for word in words]) == 0
    _, comparisons = record.read_comparison(str(tmp_path / "c.json"))
    assert [each["repeat"] for each in comparisons] == [0, 1]
    assert {point["request"]["core_mhz"] for each in comparisons for point in each["points"]} == {"auto"}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"granularity": "pass"}, "no pass of workload"),
        ({"status": "infeasible", "targets": {}}, "status is 'infeasible', there is nothing to play; choose with more"),
        ({"targets": {}}, "status is 'optimal', there is nothing to play; choose with more slack"),
        ({"targets": {"forward": {"core_mhz": 1470, "mem_mhz": "auto"}}}, "no kernel of workload"),
        ({"targets": []}, "targets is [], expected a group of fields; make it with kernel-dvfs choose"),
        ({"targets": {"forward_gelu": None}}, "targets.forward_gelu is None, expected a group of fields; make it"),
        ({"targets": {"forward_gelu": {"core_mhz": 1470}}}, "targets.forward_gelu.mem_mhz is None, expected a number"),
        (
            {"targets": {"forward_gelu": {"core_mhz": None, "mem_mhz": "auto"}}},
            "core_mhz is None, expected",
        ),
        (
            {"targets": {"forward_gelu": {"core_mhz": 1470, "mem_mhz": "auto", "power_cap_w": 300}}},
            "power_cap_w: a setting",
        ),
        ({"targets": {"forward_gelu": {"core_mhz": 1471, "mem_mhz": "auto"}}}, "1471"),
    ],
)
def test_a_schedule_that_is_not_for_these_kernels_is_refused(refused, setup_path, tmp_path, change, named):
    assert named in refused(*compare(setup_path, tmp_path, SCHEDULE | change))
    assert not (tmp_path / "c.json").exists()


@pytest.mark.parametrize("schedule", [None, [], {}])
def test_what_is_no_schedule_is_refused(refused, setup_path, tmp_path, schedule):
    assert "s.json" in refused(*compare(setup_path, tmp_path, schedule))


def test_repeats_run_from_first_to_last(refused, setup_path, tmp_path):
    assert "--first 5 --last 3" in refused(*compare(setup_path, tmp_path, SCHEDULE, "--first", "5", "--last", "3"))


# --- files ---


def test_a_place_that_cannot_be_written_is_one_line(refused, profile, tmp_path):
    (tmp_path / "file").write_text("")
    words = ("choose", profile, "--scope", "global", "--objective", "edp")
    assert "file" in refused(*words, "-o", tmp_path / "file/s.json")
    assert str(tmp_path) in refused(*words, "-o", tmp_path)


def test_a_file_that_cannot_be_written_is_named_as_it_was_asked_for(refused, profile):
    words = ("choose", profile, "--scope", "global", "--objective", "edp")
    assert refused(*words, "-o", "/proc/x.json") == "error: /proc/x.json: No such file or directory\n"


# --- words before the command ---


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("--json", "devices"), "kernel-dvfs: the command comes first: kernel-dvfs devices --json"),
        (("--slack", "2", "choose", "x"), "kernel-dvfs: the command comes first: kernel-dvfs choose --slack 2 ..."),
        (("study", "--rows", "table"), "kernel-dvfs study: the command comes first: kernel-dvfs study table --rows"),
        (("--json", "devicse"), "kernel-dvfs: unknown command 'devicse' (did you mean 'devices'?)"),
    ],
)
def test_options_before_the_command_are_told_to_come_after_it(refused, words, meant):
    assert meant in refused(*words)


# --- a reader that has enough ---


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("lines", [1, 100_000], ids=["at the end", "in the middle"])
def test_a_pipe_that_nobody_reads_any_more_ends_a_command_without_a_word(lines, unbuffered):
    import os
    import subprocess
    import sys

    code = (
        "from kernel_dvfs.cli import main; import sys\n"
        f"main.parsed = lambda _: (lambda _: [print('line') for _ in range({lines})] and None, None)\n"
        "sys.exit(main.main([]))"
    )
    reader, writer = os.pipe()
    os.close(reader)
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, text=True, env=environment, timeout=60
    )
    os.close(writer)
    assert (done.stderr, done.returncode) == ("", 141)


def test_another_pipe_that_breaks_is_still_a_fault(monkeypatch):
    from kernel_dvfs.cli import main as commands

    def run(_):
        raise BrokenPipeError

    monkeypatch.setattr(commands, "parsed", lambda _: (run, None))
    with open("/dev/null", "w") as output, monkeypatch.context() as patch:
        patch.setattr("sys.stdout", output)
        with pytest.raises(BrokenPipeError):
            main([])


# --- choose ---


def choose(profile, tmp_path, *words):
    return ["choose", profile, "--scope", "global", "-o", tmp_path / "s.json", *words]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("waste", "--slack", "-50"), "no choice keeps the limit of -50 %"),
        (("waste", "--slack", "nan"), "--slack: expected a number of percent from -100 to 1000, not 'nan'"),
        (("waste", "--slack", "inf"), "--slack: expected a number of percent from -100 to 1000, not 'inf'"),
        (("waste", "--slack", "1e9"), "--slack: expected a number of percent from -100 to 1000, not '1e9'"),
        (("edp", "--slack", "5"), "slack belongs to waste"),
        (("energy", "--slack", "0"), "slack belongs to waste"),
    ],
)
def test_a_limit_that_cannot_be_kept_or_means_nothing_is_refused(refused, profile, tmp_path, words, named):
    assert named in refused(*choose(profile, tmp_path, "--objective", *words))
    assert not (tmp_path / "s.json").exists()


def test_the_limit_is_strict_unless_slack_is_given(profile, tmp_path):
    chosen = []
    for slack in ((), ("--slack", "20")):
        assert main([str(word) for word in choose(profile, tmp_path, "--objective", "waste", *slack)]) == 0
        content = json.loads((tmp_path / "s.json").read_text())
        chosen.append((content["slack_percent"], content["targets"]["a"]["core_mhz"]))
    assert chosen == [(0, "auto"), (20.0, 1470)]


# --- sweep, profile ---


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5"])
@pytest.mark.parametrize("command", [("measure", "sweep"), ("measure", "pool", "--records", "r")])
def test_the_baseline_is_measured_at_least_once(refused, setup_path, tmp_path, command, value):
    words = (*command, "--gpu", setup_path, "--pairs", "auto-auto", "-o", tmp_path / "p.parquet")
    said = refused(*words, "--auto-repeats", value)
    assert f"--auto-repeats: expected a whole number from 1 to 1000, not '{value}'" in said


@pytest.mark.parametrize("pairs", ["", ","])
def test_pooling_nothing_is_refused(refused, setup_path, tmp_path, pairs):
    words = ("measure", "pool", "--gpu", setup_path, "--records", tmp_path, "--pairs", pairs)
    assert "nothing to pool" in refused(*words, "-o", tmp_path / "p.parquet")


# --- measure ---


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("\nbatch: 40", "\nbatch: many", "batch = 'many'"),
        ("\nbatch: 40", "\n", "key 'batch' is missing"),
        ("\nbatch: 40", "\nbach: 40\nbatch: 40", "did you mean 'batch'"),
    ],
)
def test_a_bad_configuration_is_refused(refused, root, tmp_path, old, new, named):
    config = tmp_path / "config.yaml"
    config.write_text((root / "config.yaml").read_text().replace(old, new))
    words = ("--target", "forward_gelu", "--clocks", "auto,auto", "--config", config, "-o", tmp_path / "r")
    assert named in refused("measure", "--gpu", "rtx_3080_ti", *words)


def test_a_missing_key_is_named(refused, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("batch: 40\n")
    words = ("--target", "forward_gelu", "--clocks", "auto,auto", "--config", config, "-o", tmp_path / "r")
    assert "'workload' is missing" in refused("measure", "--gpu", "rtx_3080_ti", *words)


# --- names of others ---


def test_a_name_from_a_table_is_shown_and_not_obeyed_by_the_terminal(tmp_path, capsys):
    rows = "".join(f"k\x1b[2J,{core},5000,{150000 / core},{core}\n" for core in (900, 1500))
    (tmp_path / "t.csv").write_text("kernel,core_mhz,mem_mhz,time_us,energy_uj\n" + rows)
    words = ["import", tmp_path / "t.csv", "--name", "a\x1b]0;b\x07", "--reference", "1500,5000", "-o", tmp_path / "p"]
    main([str(word) for word in words])
    said = capsys.readouterr().err
    assert said and all(line.isprintable() for line in said.splitlines())
