"""The workflow on a Slurm cluster: a real controller and a real node, fake GPUs."""

import json
import os
import signal

import pytest

pytestmark = pytest.mark.workflow

TARGETS = 48
SLUG = "simulated-h200-on-a-fake-nvml-fa4e0000"
RECORDS = 2 * TARGETS
# CPU stages beside the GPU's job, on the one node that there is
SHARED = ("--default-resources", "slurm_cpu=--partition=cpu", "mem_mb=100")
ONE_GPU = "slurm_gpu=--partition=gpu --gpus=1"


def assert_ends_once(site, targets, *config):
    """A study runs to its end through jobs that hold the GPU, and leaves nothing to do and no clock locked."""
    assert "looks which GPU it gets" in site.identify().stderr, "the login node has no driver"
    site.run(*targets, config=[ONE_GPU, *config], options=SHARED)
    assert site.boards.locks == ("none", "none") and not list(site.locks.glob("*.json"))
    assert site.jobs() <= 3, "the sweep's, which waits for a while, and those that choosing kept waiting for too long"
    # jobs of their own for the measurements would be tens or hundreds, for choices tens
    assert len(submitted(site)) < 12
    assert {"kernel-dvfs-identify", "kernel-dvfs-gpu"} <= {name.rpartition("-")[0] for name in submitted(site)}
    assert "Nothing to be done" in site.run(*targets, config=[ONE_GPU, *config], options=[*SHARED, "--quiet", "host"])


def submitted(site) -> list:
    """Of each job, the name and number."""
    return [path.stem for path in (site.directory / "logs/slurm").iterdir()]


def test_a_gpu_study_runs_to_its_end_through_one_job_that_holds_the_gpu(new_site):
    folder = f"results/{SLUG}/gpt3-xl-b40-tp1"
    again = [f"{folder}/measurements/validation/repeat-{repeat}.json" for repeat in range(2)]
    quick = "by_clock={minutes: 1, worth_percent: 5, over_percent: 50}"
    assert_ends_once(new_site, again, quick, "sessions=1")
    visits = [json.loads(path.read_text()) for path in new_site.directory.glob(f"{folder}/measurements/visit/*/*.json")]
    records = [json.loads((new_site.directory / path).read_text()) for path in again]
    assert visits and {record["device"]["uuid"] for record in visits + records} == {new_site.boards.uuid}
    schedule = json.loads((new_site.directory / folder / "schedules/kernel-global-waste-slack0.json").read_text())
    assert schedule["status"] == "optimal"
    sessions = [{comparison["session"] for comparison in record["comparisons"]} for record in records]
    assert [len(each) for each in sessions] == [1, 1] and sessions[0] != sessions[1], "each repeat has one of its own"


@pytest.mark.nightly
def test_a_gpu_study_of_every_pair_runs_to_its_end_as_well(new_site):
    assert_ends_once(new_site, ["all"])
    folder = new_site.directory / f"results/{SLUG}/gpt3-xl-b40-tp1"
    records = [json.loads(path.read_text()) for path in new_site.records()]
    assert len(records) == RECORDS
    assert {record["device"]["uuid"] for record in records} == {new_site.boards.uuid}
    assert "kernel-dvfs-aggregate" in {name.rpartition("-")[0] for name in submitted(new_site)}
    schedule = json.loads((folder / "schedules/kernel-global-waste-slack0.json").read_text())
    assert schedule["status"] == "optimal"
    assert (folder / "tables/validation.csv").is_file() and (folder / "figures/fig5_kernels.pdf").is_file()
    repeats = [json.loads(path.read_text()) for path in folder.glob("measurements/validation*/repeat-*.json")]
    sessions = [{comparison["session"] for comparison in repeat["comparisons"]} for repeat in repeats]
    # each repeat has a session of its own: one that serves both schedules that are relied on, and one as published
    assert len(repeats) == 6 and all(len(each) == 1 for each in sessions)
    assert len(set().union(*sessions)) == 4


def records_of(kernels, *pairs) -> list:
    """Paths of records, as targets of Snakemake."""
    folder = f"results/{SLUG}/gpt3-xl-b40-tp1/measurements/kernel"
    return [f"{folder}/{kernel}/{pair}/r0.json" for kernel in kernels for pair in pairs]


@pytest.fixture
def kernels(setup_of) -> list:
    return list(setup_of().targets["kernel"])


@pytest.mark.parametrize("told", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_node_that_dies_in_mid_sweep_loses_and_doubles_nothing(site, kernels, told):
    wanted = records_of(kernels[:6], "auto-auto", "1500-auto")
    running = site.begin(*wanted, config=["sessions=1"])
    site.wait_for(lambda: len(site.records()) >= 4, "four records")
    site.slurm.kill_node(told)
    before = site.records()
    site.slurm.start_node()
    running.join(300)
    assert running.exitcode == 0, (site.directory / "said").read_text()[-5000:]
    after = site.records()
    assert {str(path.relative_to(site.directory)) for path in after} == set(wanted)
    repeated = [path for path, written in before.items() if after[path] != written]
    assert len(repeated) <= 1, "what was being written when the node died"
    runs = {json.loads(path.read_text())["run"]["run_id"] for path in after}
    log = (site.slurm.folder / "slurmctld.log").read_text()
    assert len(runs) == 2, f"the rest in one other job: {runs}, {site.jobs()} jobs\n{log[-3000:]}"
    said = (site.directory / "said").read_text()
    assert "ended without restoring its clocks; reset" in said
    assert site.boards.locks == ("none", "none") and not list(site.locks.glob("*.json"))


@pytest.mark.parametrize("retries", ["0", pytest.param("2", marks=pytest.mark.nightly)])
def test_a_cancelled_job_restores_the_clocks_and_what_is_finished_stays(site, kernels, retries):
    wanted = records_of(kernels[:8], "1500-auto")
    running = site.begin(*wanted, options=["--retries", retries])
    site.wait_for(lambda: site.boards.locks != ("none", "none") and len(site.records()) > 2, "locked clocks")
    job, before = site.job(), site.jobs()
    site.slurm.ask("scancel", job)
    site.wait_for(lambda: site.boards.locks == ("none", "none"), "restored clocks", 20)
    site.wait_for(lambda: not list(site.locks.glob("*.json")), "the lease to go", 5)
    running.join(120)
    assert running.exitcode
    finished = site.records()
    assert 2 < len(finished) < len(wanted)
    said = (site.directory / "said").read_text()
    assert f"Slurm job {job}, which holds the GPU, was cancelled" in said, said[-3000:]
    # whoever cancels a job does not want it submitted again; who starts a run does
    assert not site.job() and site.jobs() == before
    if retries == "0":
        # as a run leaves it that was killed before it could end
        job_file = site.directory / f".snakemake/kernel-dvfs-{site.boards.uuid}.job.json"
        job_file.write_text(json.dumps({"job": job, "clocks": ""}))
    site.run(*wanted)
    assert site.jobs() > before
    assert finished.items() <= site.records().items() and len(site.records()) == len(wanted)


def test_each_session_has_a_measuring_process_of_its_own_in_one_job(site, kernels):
    wanted = records_of(kernels[:3], "auto-auto", "1500-auto")
    wanted += [path.replace("r0.json", "r1.json") for path in records_of(kernels[:3], "auto-auto")]
    site.run(*wanted, config=["sessions=2", "auto_repeats=2"])
    runs = {}
    for path in site.records():
        runs.setdefault(path.name, set()).add(json.loads(path.read_text())["run"]["run_id"])
    assert {name: len(each) for name, each in runs.items()} == {"r0.json": 1, "r1.json": 1}
    assert not runs["r0.json"] & runs["r1.json"] and site.jobs() == 1
    assert site.boards.locks == ("none", "none") and not list(site.locks.iterdir()), "nothing of the sockets either"


def test_ctrl_c_ends_the_job_with_the_run(site, kernels):
    running = site.begin(*records_of(kernels, "1500-auto"))
    site.wait_for(lambda: len(site.records()) > 2, "records")
    os.kill(running.pid, signal.SIGINT)
    site.wait_for(lambda: running.exitcode is not None, "the run to end", 300)
    assert not site.job() and site.boards.locks == ("none", "none")


def test_external_clocks_are_one_job_a_pair_each_asked_for_its_clocks(site, kernels):
    site.run(*records_of(kernels[:2], "auto-auto", "1500-auto"), config=["clocks=external"])
    records = [json.loads(path.read_text()) for path in site.records()]
    assert len(records) == 4 and len({record["run"]["run_id"] for record in records}) == 2
    jobs = [
        each for each in site.slurm.ask("scontrol", "-o", "show", "job").splitlines() if str(site.directory) in each
    ]
    asked = ["TresFreq=gpu:1500" in each for each in jobs if "JobName=kernel-dvfs-gpu" in each]
    assert sorted(asked) == [False, True]


def test_another_gpu_of_the_type_is_another_specimen_and_is_named(site):
    both = "--partition=gpu --gpus=2"
    assert site.boards.get("uuid", 1) != site.boards.uuid
    seen = site.slurm.environment(LD_LIBRARY_PATH=str(site.boards.folder), FAKENVML_STATE=str(site.boards.path))
    site.environment, login = seen, site.environment
    assert site.command_line("identify", "--gpu", "1").returncode == 0
    site.environment = login
    said = site.run("profile", check=False, options=["-n"])
    assert "more than one GPU of the cluster is known; name one" in said
    other = f"gpu=nvml:{site.boards.get('uuid', 1)}"
    record = f"results/{SLUG.replace('fa4e0000', 'fa4e0001')}/gpt3-xl-b40-tp1/measurements/kernel/forward_gelu"
    said = site.run(f"{record}/1500-auto/r0.json", config=[other], check=False, options=["--retries", "0"])
    assert f"not {site.boards.get('uuid', 1)}: another specimen" in said, "a job with one GPU is given the first"
    assert not site.records()
    site.run(f"{record}/1500-auto/r0.json", config=[other, f"slurm_gpu={both}"])
    (path,) = site.records()
    assert json.loads(path.read_text())["device"]["uuid"] == site.boards.get("uuid", 1)


def test_another_driver_on_the_node_is_noticed_there_and_measured_again(site):
    site.boards.set(driver="581.00 (fake NVML)")
    record = f"results/{SLUG}/gpt3-xl-b40-tp1/measurements/kernel/forward_gelu/1500-auto/r0.json"
    said = site.run(record, check=False, options=["--retries", "0"])
    assert "has changed: driver 580.00 (fake NVML) -> 581.00 (fake NVML); run snakemake again" in said
    site.run(record)
    assert json.loads((site.directory / record).read_text())["device"]["driver"] == "581.00 (fake NVML)"


@pytest.mark.parametrize(
    "options, says",
    [
        ("--gpus=1", "No partition specified or system default partition"),
        ("--partition=gpu --gpus=a100:1", "Requested node configuration is not available"),
        ("--partition=nowhere --gpus=1", "invalid partition specified: nowhere"),
        ("--partition=gpu", "Slurm gave this job no GPU"),
    ],
)
def test_what_slurm_cannot_give_is_one_line_before_anything_is_measured(new_site, options, says):
    done = new_site.identify(options)
    assert done.returncode == 2
    (error,) = (line for line in done.stderr.splitlines() if line.startswith("error: "))
    assert says in error and "slurm_gpu" in error
    assert not new_site.records()


def test_a_simulated_sweep_is_no_job_of_slurm(new_site):
    config = ["gpu=rtx_3080_ti", "grid={core_mhz: [1470], mem_mhz: [9251], auto: false}", "tensor_energy_pj=[]"]
    new_site.run("profile", config=config)
    assert len(new_site.records()) == RECORDS
    assert len(list((new_site.directory / "logs/slurm").iterdir())) == 1, "the profile alone"
