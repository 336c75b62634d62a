"""`study` says what is here, what is missing and how long it takes, before it runs; of a GPU it runs the workflow."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from laboratory import Lab
from made_up_study import made_up

from kernel_dvfs import jobs, shipped
from kernel_dvfs.cli.main import main
from kernel_dvfs.native import build
from kernel_dvfs.report.page import study_page
from kernel_dvfs_clocks import package

# two kernels at three settings, made up; the second waits for memory
TABLE = """gpu,kernel,core_mhz,mem_mhz,time_ms,energy_mj,is_auto
example,product,,,10.0,3000,1
example,product,1400,5000,10.05,2500,0
example,product,1000,5000,14.0,2300,0
example,norm,,,1.0,250,1
example,norm,1400,5000,1.0,200,0
example,norm,1000,5000,1.0,150,0
"""
# instead of Snakemake: it keeps what it is told, and ends as the test says
TOLD, ENDED = "told.json", "ended.txt"
SNAKEMAKE = """import json, signal, sys, time
def end(number, _):
    open({ended!r}, "a").write(f"{{number}} ")
    sys.exit(5)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, end)
open({told!r} + ".new", "w").write(json.dumps(sys.argv[1:]))
import os; os.rename({told!r} + ".new", {told!r})
time.sleep({seconds})
sys.exit({code})
"""
NO_RIGHT = """import sys
from kernel_dvfs_clocks.setters import choice
choice.may_set_clocks = lambda: (False, "user 1000 lacks CAP_SYS_ADMIN")
from kernel_dvfs.cli.main import main
sys.exit(main({words!r}))
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with a table."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "mine.csv").write_text(TABLE)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def snakemake(tmp_path):
    """`snakemake(code)`: a folder, for PYTHONPATH, of a stand-in for Snakemake."""

    def make(code=0, seconds=0):
        folder = tmp_path / "stand-in"
        folder.mkdir()
        (folder / "snakemake.py").write_text(
            SNAKEMAKE.format(told=TOLD, ended=ENDED, code=code, seconds=seconds), encoding="utf-8"
        )
        return str(folder)

    return make


@pytest.fixture
def lab(boards, tmp_path, config):
    """`lab(profiles, **knobs)`: fake boards, and a folder with a training step beside them."""

    def make(profiles="h200", **knobs):
        made = Lab(boards(profiles, **({"time": "real"} | knobs)), tmp_path / "work", config())
        (made.folder / "train.py").write_text("def make_step():\n    return None\n")
        return made

    return make


@pytest.fixture
def torch(tmp_path):
    """A folder, for PYTHONPATH, of what looks like torch to whoever does not import it."""
    about = tmp_path / "with-torch/torch-2.9.0.dist-info/METADATA"
    about.parent.mkdir(parents=True)
    about.write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9.0\n")
    (tmp_path / "with-torch/torch.py").write_text("raise AssertionError('imported')\n")
    return str(tmp_path / "with-torch")


def words_of(done) -> list[str]:
    """What the last line of a dry run says that it would run, after `snakemake` and where that lies."""
    line = done.stdout.splitlines()[-1]
    assert line.startswith("runs: snakemake "), done.stdout + done.stderr
    return line[line.index("--cores") :].split()


# --- a table ---


def test_a_table_is_studied_as_its_commands_do_it(here, capsys):
    assert main(["study", "mine.csv"]) == 0
    study = capsys.readouterr()
    assert main(["import", "mine.csv", "-o", "p.parquet"]) == 0
    said, answers = capsys.readouterr().err, []
    for limit in ("0", "0.6", "1", "2"):
        assert main(["choose", "p.parquet", "--slack", limit, "-o", f"s{limit}.json"]) == 0
        own = json.loads(Path(f"study-mine/kernel-global-waste-slack{limit}.json").read_text())
        assert own["targets"] == json.loads(Path(f"s{limit}.json").read_text())["targets"]
        answers.append(capsys.readouterr().out)
    page = "study-mine/report.html"
    assert study.out == "".join(answers) + f"written: study-mine/ and the page {page}\n" and study.err == said
    # the norm at 1000 MHz saves 100 of 3250 mJ; with 0.6 % of 11 ms, the product at 1400 MHz saves 500 more
    assert "3.08 % less energy and the same time" in answers[0] and "18.46 % less energy" in answers[1]
    assert (
        main(["report", "study-mine/profile.parquet", "study-mine/kernel-global-waste-slack0.json", "-o", "r.html"])
        == 0
    )
    assert Path(page).read_text() == Path("r.html").read_text()


def test_a_dry_run_of_a_table_writes_nothing_and_how_it_is_read_is_asked_as_import_does(here, capsys):
    Path("odd.csv").write_text(TABLE.replace("kernel,core_mhz", "appName,coreF"))
    before = {path.name for path in here.iterdir()}
    assert main(["study", "odd.csv"]) == 2
    assert "appName" in capsys.readouterr().err
    assert main(["study", "odd.csv", "--columns", "kernel=appName,core_mhz=coreF", "--dry-run"]) == 0
    told = capsys.readouterr()
    assert told.out == "takes: seconds; nothing is measured\n" and "2 kernels of example" in told.err
    assert {path.name for path in here.iterdir()} == before


# --- a simulated GPU ---


def test_a_simulated_gpu_is_the_workflow_s_whose_exit_code_is_returned(here, snakemake, monkeypatch, capfd):
    monkeypatch.setenv("PYTHONPATH", snakemake(code=7))
    assert main(["study", "h200_sxm", "--dry-run"]) == 0 and not Path(TOLD).exists()
    dry = capfd.readouterr().out
    assert main(["study", "h200_sxm"]) == 7
    assert capfd.readouterr().out == dry, "what is needed is said before it runs"
    at = shipped.WORKFLOW
    elsewhere = ["--snakefile", f"{at}/Snakefile", "--workflow-profile", f"{at}/profiles/default"]
    told = json.loads(Path(TOLD).read_text())
    assert told == [*elsewhere, "--cores", "1", "all", "--config", "gpu=h200_sxm"]
    assert dry.splitlines()[-1] == f"runs: snakemake {' '.join(told)}" and "one to three minutes" in dry
    monkeypatch.chdir(at)
    assert main(["study", "h200_sxm", "--dry-run"]) == 0
    assert capfd.readouterr().out.splitlines()[-1] == "runs: snakemake --cores 1 all --config gpu=h200_sxm"


def test_a_simulated_gpu_runs_no_step_and_a_file_alone_names_none(here, refused):
    Path("train.py").write_text("def make_step():\n    return None\n")
    said = refused("study", "train.py:make_step", "--gpu", "h200_sxm")
    assert "a simulated GPU runs no step; capture it where there is a GPU" in said
    assert "'train.py' names no function of a Python file" in refused("study", "train.py", "--gpu", "h200_sxm")


def test_packages_that_are_missing_are_named_with_their_remedy(here, monkeypatch, refused):
    found = package.find_spec
    monkeypatch.setattr(package, "find_spec", lambda name: None if name in ("snakemake", "plotnine") else found(name))
    said = refused("study", "h200_sxm")
    assert f"{sys.executable} lacks plotnine, snakemake: " in said and "pip install 'kernel-dvfs[workflow]'" in said
    monkeypatch.setattr(package, "find_spec", lambda name: None if name == "pyarrow" else found(name))
    assert "lacks pyarrow: " in (said := refused("study", "mine.csv")) and "'kernel-dvfs[tables]'" in said
    assert "lacks pyarrow: " in (said := refused("study", "nvml")) and "'kernel-dvfs[workflow]'" in said
    assert [path.name for path in here.iterdir()] == ["mine.csv"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_would_end_it_is_passed_on_and_the_workflow_ends_by_itself(here, root, snakemake, number):
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from kernel_dvfs.cli.main import main; sys.exit(main())",
            "study",
            "h200_sxm",
        ],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{snakemake(seconds=60)}:{root / 'workflow'}"},
        stdout=subprocess.DEVNULL,
    )
    end_s = time.monotonic() + 60
    while not Path(TOLD).exists() and process.poll() is None and time.monotonic() < end_s:
        time.sleep(0.02)
    process.send_signal(number)
    assert process.wait(60) == 5
    assert Path(ENDED).read_text() == f"{int(number)} "


# --- a real GPU ---


def test_a_gpu_whose_clocks_may_be_locked_takes_what_devices_says_of_its_answer(lab):
    made = lab("h200,rtx_3080_ti")
    done = made.command("study", "nvml:0", "--dry-run")
    assert done.returncode == 0 and not done.stderr
    for said in (
        "here: the CUDA kernels: built",
        "here: Simulated H200 on a fake NVML: driver 580.00 (fake NVML), no other program uses it, "
        "its energy counter works",
        "here: the right to lock its clocks, through nvml (not tried)",
    ):
        assert said in done.stdout, done.stdout
    parts = json.loads(made.command("devices", "--json").stdout)["gpus"][0]["estimates"][-1]["least_s"]
    minutes = {part: f"{parts[part] / 60:.0f}" for part in ("by clock", "measuring again")}
    whole = (parts["by clock"] + parts["measuring again"]) / 60
    told = ", ".join(f"{part} {each} min" for part, each in minutes.items())
    assert f"at least {whole:.0f} min ({told}), until" in done.stdout
    assert words_of(done) == ["--cores", "1", "answer", "--config", "gpu=nvml:0"]
    assert made.boards.get("sets") == "0" and not made.lease.exists() and not (made.folder / "results").exists()


def test_without_the_right_its_clocks_are_left_alone(lab):
    made = lab()
    done = made.python(NO_RIGHT.format(words=["study", "nvml", "--dry-run"]))
    assert done.returncode == 0 and "at least 10 min (sweep 10 min), until" in done.stdout
    assert "here: its clocks stay at auto, so the study chooses none: kernel-dvfs devices says" in done.stdout
    assert words_of(done) == ["--cores", "1", "all", "--config", "gpu=nvml", "clocks=auto-only"]


@pytest.mark.parametrize("what", ["nvml", "train.py:make_step"])
@pytest.mark.parametrize(
    ("knobs", "why"),
    [
        ({"deny": 1}, "no permission"),
        ({"fail": "nvmlDeviceSetGpuLockedClocks:3"}, "not supported on this GPU"),
        ({"fail": "nvmlDeviceSetGpuLockedClocks:999"}, "an unknown fault of the driver"),
    ],
)
def test_a_driver_that_refuses_locks_to_root_has_its_clocks_left_alone_before_anything_is_built(
    lab, snakemake, torch, what, knobs, why
):
    made = lab(**knobs)
    done = made.command("study", what, PYTHONPATH=f"{torch}:{snakemake()}")
    assert done.returncode == 0 and not done.stderr, done.stderr
    line = f"since the driver refuses to lock them ({why}): kernel-dvfs devices says what to ask for"
    assert f"here: its clocks stay at auto, so the study chooses none, {line}" in done.stdout
    words = ["gpu=nvml", "clocks=auto-only"]
    words += [] if what == "nvml" else [f"workload=step:{what}", "minutes=10"]
    assert json.loads((made.folder / TOLD).read_text())[-len(words) - 2 :] == ["all", "--config", *words]
    # of a driver that fails nobody knows what it has set: both are reset
    assert made.boards.get("sets") == ("2" if "unknown" in why else "0") and made.restored()


def test_a_lock_that_is_tried_is_of_the_whole_range_and_is_given_back(lab, snakemake):
    made = lab()
    done = made.command("study", "nvml", PYTHONPATH=snakemake())
    assert "here: the right to lock its clocks, through nvml\n" in done.stdout
    # the range, then both locks reset
    assert made.boards.get("sets") == "3" and made.restored()


# the workflow's folder is this one, whose configuration says otherwise
CONFIGURED = """
from pathlib import Path
from kernel_dvfs import shipped
shipped.WORKFLOW = Path.cwd()
from kernel_dvfs.cli.main import main
main(["study", "nvml"])
"""


@pytest.mark.parametrize(
    ("changed", "sets", "left"),
    [
        ({"after": {"core": [345, 1500], "mem": None}}, True, "345-1500"),
        ({"clocks": "external"}, False, "none"),
    ],
)
def test_what_is_tried_leaves_the_locks_of_a_site_and_of_a_batch_system(lab, snakemake, root, changed, sets, left):
    made = lab()
    content = yaml.safe_load((root / "config.yaml").read_text()) | changed
    (made.folder / "config.yaml").write_text(yaml.safe_dump(content))
    done = made.python(CONFIGURED, PYTHONPATH=snakemake())
    assert "runs: snakemake" in done.stdout, done.stderr
    assert (int(made.boards.get("sets")) > 0) == sets
    assert made.boards.locks == (left, "none") and not made.lease.exists()


def test_a_step_runs_in_this_python_and_is_captured_first(lab, torch):
    made = lab()
    done = made.command("study", "train.py:make_step", "--dry-run", PYTHONPATH=torch)
    assert done.returncode == 0 and not done.stderr
    assert f"here: train.py:make_step: run by {sys.executable}" in done.stdout
    assert "(capture 1 min, by clock 30 min, measuring again 10 min)" in done.stdout
    step = "workload=step:train.py:make_step"
    assert words_of(done) == ["--cores", "1", "answer", "--config", "gpu=nvml", step]
    done = made.python(NO_RIGHT.format(words=["study", "train.py:make_step", "--dry-run"]), PYTHONPATH=torch)
    # 75 s to capture it, then ten minutes
    assert done.returncode == 0 and "at least 11 min (sweep 11 min)" in done.stdout
    assert words_of(done) == ["--cores", "1", "all", "--config", "gpu=nvml", "clocks=auto-only", step, "minutes=10"]


def test_all_that_is_missing_is_told_at_once_and_nothing_is_started(lab, snakemake):
    made = lab()
    hidden = {"LD_LIBRARY_PATH": "/nowhere", "PYTHONPATH": snakemake()}
    done = made.command("study", "nowhere.py:make_step", **hidden)
    errors = done.stderr.splitlines()
    assert done.returncode == 2 and len(errors) == 2 and all(each.startswith("error: ") for each in errors)
    assert "nowhere.py: no such file" in errors[0] and "no NVIDIA driver" in errors[1]
    assert "takes: " not in done.stdout and {path.name for path in made.folder.iterdir()} == {"train.py"}


def test_the_gpu_of_a_step_is_named_as_other_commands_name_it(lab, torch):
    made = lab("h200,h200")
    uuid = made.boards.uuid
    for gpu, named in (("1", "nvml:1"), ("nvml:1", "nvml:1"), (uuid, f"nvml:{uuid}")):
        done = made.command("study", "train.py:make_step", "--gpu", gpu, "--dry-run", PYTHONPATH=torch)
        assert done.returncode == 0 and f"gpu={named}" in words_of(done), done.stderr


def test_a_step_that_is_not_there_is_told_of_once(lab, torch):
    done = lab().command("study", "nowhere.py:make_step", PYTHONPATH=torch)
    assert done.returncode == 2 and done.stderr.count("nowhere.py: no such file") == 1, done.stderr


def test_a_gpu_that_is_not_free_is_refused_and_so_is_one_of_several_that_is_not_named(lab, snakemake):
    made = lab("h200,h200", foreign_compute=1)
    told = {"PYTHONPATH": snakemake()}
    done = made.command("study", "nvml:0", **told)
    assert done.returncode == 2 and "1 other process(es) compute on it" in done.stderr and done.stderr.count("\n") == 1
    done = made.command("study", "nvml", **told)
    assert done.returncode == 2 and "there are 2 GPUs; name one" in done.stderr and done.stderr.count("\n") == 1
    done = made.command("study", "nvml:1", **told)
    # the stand-in has measured nothing
    assert "neither a profile" in done.stderr or "no such folder" in done.stderr, done.stderr
    told = json.loads((made.folder / TOLD).read_text())
    assert told[-5:] == ["--cores", "1", "answer", "--config", "gpu=nvml:1"]


def test_the_page_of_an_answer_shows_what_is_made_and_misses_nothing(tmp_path):
    folder = made_up(tmp_path / "gpu/work", kind="nvml")
    for path in (*folder.glob("figures/*"), folder / "tables/strategies.json"):
        path.unlink()
    whole, missing = study_page.make(folder)
    assert missing and "not made yet" in whole
    page = Path(jobs.write_page_so_far(str(folder))).read_text("utf-8")
    assert "not made yet" not in page and "measured again" in page


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([None, "/x/nvcc", "/x/libcublasLt.so.13"], "no C++ compiler: apt-get install g++"),
        (
            ["/usr/bin/c++", None],
            "there is no nvcc: install a CUDA toolkit (12 or 13), put its nvcc on PATH, then make cuda",
        ),
        (["/usr/bin/c++", "/x/nvcc", "/x/libcudnn.so.9"], "cuBLAS is not installed: "),
    ],
)
def test_what_builds_the_kernels_is_looked_for(monkeypatch, found, said):
    monkeypatch.setattr(build, "watched", lambda backend: found)
    with pytest.raises(build.MissingTool, match=re.escape(said)):
        build.check_tools("cuda")
    monkeypatch.setattr(build, "watched", lambda backend: ["/usr/bin/c++", "/x/nvcc", "/x/libcublasLt.so.13"])
    assert build.check_tools("cuda") == "/usr/bin/c++, /x/nvcc"


# --- as installed ---


@pytest.mark.workflow
def test_as_installed_the_workflow_comes_with_the_library(root, tmp_path):
    """The packages alone, what is linked copied, as the wheel has them."""
    for path in (root / "workflow").glob("*kernel_dvfs*"):
        # compiled modules as well, but none that is being written
        shutil.copytree(path, tmp_path / "site" / path.name, ignore=shutil.ignore_patterns("*.pyc.*"))
    (tmp_path / "work").mkdir()

    def run(*words):
        own = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path / "site"), "HOME": str(tmp_path)}
        return subprocess.run(
            [sys.executable, "-m", *words], cwd=tmp_path / "work", env=own, capture_output=True, text=True
        )

    dry = run("kernel_dvfs", "study", "rtx_a4000", "--dry-run")
    words = dry.stdout.splitlines()[-1].removeprefix("runs: snakemake ").split()
    assert words[1] == f"{tmp_path}/site/kernel_dvfs/shipped/Snakefile", dry.stdout + dry.stderr
    settings = words.index("--config") + 1
    words[settings:settings] = ["grid={core_mhz: [1470], mem_mhz: [7001], auto: false}"]
    planned = run("snakemake", "-n", "--quiet", "rules", *words)
    assert planned.returncode == 0, planned.stdout + planned.stderr
    counted = dict(re.findall(r"^(\w+) +(\d+)$", planned.stdout, re.M))
    assert {"build", "measure", "choose_schedule", "report_page", "choose_deployable"} <= {*counted}
