"""What a lab measured travels as one archive: whole, checked, and silent about who measured where."""

import gzip
import hashlib
import io
import json
import os
import sys
import tarfile
from pathlib import Path

import pytest

from experiments.collection import contribute as contributing
from experiments.collection.contribute import contribute
from kernel_dvfs.cli.main import main
from kernel_dvfs.errors import InputError
from kernel_dvfs.files import write_json
from kernel_dvfs.measurement import latency_file, setup
from kernel_dvfs.profile import contribution, store
from kernel_dvfs.profile.contribution import import_contribution, read

UUID = "GPU-0fca33e6-4022-4d7e-8cc7-e8e787c3d4f7"
HOST, USER, FOLDER = "cluster-node-17", "mallory", "/scratch/mallory/study"
GPU = {
    "kind": "nvml",
    "name": "NVIDIA H200",
    "slug": "nvidia-h200-0fca33e6",
    "uuid": UUID,
    "pci_bus_id": "00000000:00:06.0",
    "driver": "580.159.04",
    "vbios": "96.00.A5.00.1A",
    "power_limit_mw": 700_000,
    "ecc": True,
    "serial": "1654922001234",
}
WORKLOAD = {"name": "gpt3-xl-b40-tp1", "model": "gpt3-xl", "batch": 40, "folder": FOLDER}
CHANGE = {"domain": "core", "from_mhz": 345, "to_mhz": 1980, "verdict": "ok"}
LATENCY = latency_file.content(
    {
        "gpu": {"name": "NVIDIA H200", "uuid": UUID, "driver": "580.159.04", "pci_bus_id": "00000000:00:06.0"},
        "host": HOST,
        "started_utc": "2026-11-22T14:00:03Z",
        "protocol": {"repeats": 3},
    },
    [CHANGE | dict.fromkeys(latency_file.QUANTITIES, 0.01 * n) for n in (1, 2, 3)],
)


def point(target, core_mhz, time_s, energy_j, **more):
    row = dict.fromkeys(store.COLUMNS)
    own = {"study": "kernel", "target": target, "launches_per_iteration": 24, "n": 3, "verdict": "ok"}
    clocks = {"core_mhz": core_mhz, "is_baseline": core_mhz is None, "time_s": time_s, "energy_j": energy_j}
    return row | own | clocks | {"reached_core_mhz": core_mhz or 1980.0, "time_sd_s": 1e-7 / 3} | more


POINTS = [point("gelu", None, 3.26e-4, 0.2269), point("gelu", 1500.0, 3.3e-4, 0.2), point("gemm", None, 0.002, 1.38)]


@pytest.fixture
def study(tmp_path, monkeypatch):
    """The folder of a study of a real GPU, as the workflow leaves it; on a machine and of a user with telling names."""
    monkeypatch.setattr(contributing.socket, "gethostname", lambda: HOST)
    monkeypatch.setattr(contributing.getpass, "getuser", lambda: USER)
    folder = tmp_path / "results" / GPU["slug"] / WORKLOAD["name"]

    def make(points=POINTS, kind="nvml", **workload):
        measurement = {"window_s": 5, "slurm_gpu": f"--nodelist={HOST}"}
        path = setup.store(str(folder / "setup"), GPU, WORKLOAD, {"kernel": {}, "pass": {}}, measurement)
        workload = {"setup": Path(path).stem} | workload
        columns = {name: [row[name] for row in points] for name in store.COLUMNS}
        gpu = {key: GPU[key] for key in ("name", "slug")} | {"kind": kind}
        store.write_profile(folder / "profile.parquet", columns, gpu, WORKLOAD | workload, ["core_mhz", "mem_mhz"])
        record = folder / "measurements/kernel/gelu/auto-auto/r0.json"
        record.parent.mkdir(parents=True, exist_ok=True)
        run = {"host": "node-a7.lab", "started_utc": "2026-11-21T20:23:06Z", "boot_id": "b"}
        write_json(record, {"device": GPU | {"cuda": "13.0"}, "run": run})
        return folder

    return make


def files_of(path):
    with tarfile.open(path) as archive:
        return {member.name.rpartition("/")[2]: archive.extractfile(member).read().decode() for member in archive}


def packed(path, texts, names=None):
    """An archive of one's own making."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name, text in texts.items():
            member = tarfile.TarInfo((names or {}).get(name, f"x/{name}"))
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    Path(path).write_bytes(gzip.compress(plain.getvalue()))
    return path


def test_what_comes_back_is_what_was_measured_to_the_last_digit(study, tmp_path):
    folder = study()
    archive, _ = contribute(folder, tmp_path / "a.tar.gz")
    import_contribution(archive, tmp_path / "back.parquet")
    back, own = store.read_profile(tmp_path / "back.parquet"), store.read_profile(folder / "profile.parquet")
    assert back.table.to_pylist() == own.table.to_pylist()
    assert back.metadata["gpu"] == {"kind": "table", "name": "NVIDIA H200", "slug": "table-a"}
    assert back.metadata["workload"]["model"] == "gpt3-xl"
    assert back.metadata["workload"]["contribution"]["licence"] == "CC-BY-4.0"


def test_nothing_in_it_says_who_measured_or_where(study, tmp_path):
    write_json(tmp_path / "latency.json", LATENCY)
    archive, _ = contribute(study(), tmp_path / "a.tar.gz", latency=tmp_path / "latency.json")
    texts = files_of(archive)
    assert set(texts) == {"contribution.json", "profile.csv", "latency.json"}
    secret = (UUID, UUID[4:], "0fca33e6", HOST, USER, FOLDER, "00:06.0", "1654922001234", "boot", "20:23", "14:00:03")
    for word in (*secret, str(tmp_path)):
        for name, text in texts.items():
            assert word not in text, (word, name)
    with tarfile.open(archive) as members:
        assert {(each.uid, each.gid, each.uname, each.gname, each.mtime) for each in members} == {(0, 0, "", "", 0)}
    about = json.loads(texts["contribution.json"])
    assert about["board"] == {
        **{key: GPU[key] for key in ("name", "driver", "vbios", "power_limit_mw", "ecc")},
        "cuda": "13.0",
    }
    assert (about["date"], about["protocol"]) == ("2026-11-21", {"window_s": 5})


def test_a_board_has_one_name_at_a_site_and_another_elsewhere(study, tmp_path):
    folder = study()
    names = [
        json.loads(
            files_of(contribute(folder, tmp_path / f"{salt}.tar.gz", salt=tmp_path / salt)[0])[contribution.ABOUT]
        )
        for salt in ("one", "one", "other")
    ]
    boards = [each["boards"] for each in names]
    assert boards[0] == boards[1] != boards[2]
    assert (tmp_path / "one").stat().st_mode & 0o777 == 0o600
    contribute(folder, tmp_path / "b.tar.gz")
    assert (tmp_path / "results" / contributing.SALT).is_file(), "in the results folder, for all studies of the site"


def test_the_same_measurements_give_the_same_bytes(study, tmp_path):
    folder = study()
    archives = [Path(contribute(folder, tmp_path / f"{name}.tar.gz")[0]).read_bytes() for name in "ab"]
    assert archives[0] == archives[1]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (f"{USER}sort", None),  # part of a longer word
        ("gemm 2/3 of std::plus<float>", None),
        (f"kernel of {USER.upper()}", USER),
        (f"at {HOST.upper()}", HOST),
        ("on node-a7.lab", "node-a7"),  # where it was measured, not where it is contributed
        ("fn(/home/bob/proj/x.py:3)", "fn(/home/bob/proj/x.py:3)"),
        ("triton=/home/bob/x.py", "triton=/home/bob/x.py"),
        ("file:///home/bob/x.py", "file:///home/bob/x.py"),
        ("/secretproject", "/secretproject"),
        ("C:/Users/bob/x", "C:/Users/bob/x"),
        ("C:\\Users\\bob", "C:\\Users\\bob"),
        ("<class>@/home/bob/x.py", "<class>@/home/bob/x.py"),
        ("~/train.py", "~/train.py"),
        ("0000:65:00.0", "0000:65:00.0"),
        ("00000000:0A:00.0 gemm", "00000000:0A:00.0 gemm"),
        ("MIG-12345678-4022-ad7e-7cc7-e8e787c3d4f7", "MIG-12345678-4022-ad7e-7cc7-e8e787c3d4f7"),
        (f"{USER}_kernel", USER),
        (f"kernel of {USER}", USER),
        ("/home/somebody/train.py:step", "/home/somebody/train.py:step"),
        (f"on {HOST}", HOST),
        (f"step {UUID}", UUID),
        (f"board {UUID.split('-')[1]}", UUID.split("-")[1]),
        ("from 10.0.13.7", "from 10.0.13.7"),
        ("fe80:0:0:1::7 gemm", "fe80:0:0:1::7 gemm"),
        ("ask bob@lab.example.org", "ask bob@lab.example.org"),
        ("on gpu07.cluster", "on gpu07.cluster"),
        ("driver 580.159.04 of 96.00.A5.00.01", None),
    ],
)
def test_a_name_that_tells_who_or_where_is_refused(study, tmp_path, name, shown):
    folder = study([point(name, None, 1e-3, 0.5)])
    if shown is None:
        contribute(folder, tmp_path / "a.tar.gz")
        return
    with pytest.raises(InputError) as refused:
        contribute(folder, tmp_path / "a.tar.gz")
    assert repr(shown) in str(refused.value) and "profile.csv" in str(refused.value)
    assert not (tmp_path / "a.tar.gz").exists()


@pytest.mark.parametrize("user", ["al", "müllerin", "Ed"])
def test_a_short_name_and_one_beyond_ascii_are_found_in_any_file(study, tmp_path, monkeypatch, user):
    monkeypatch.setattr(contributing.getpass, "getuser", lambda: user)
    for more in ({"points": [point(f"gemm_{user.upper()}", None, 1e-3, 0.5)]}, {"model": f"model of {user}"}):
        folder = study(**more)
        with pytest.raises(InputError, match=rf"would hold '{user}', which tells who measured where"):
            contribute(folder, tmp_path / "a.tar.gz")
        contribute(folder, tmp_path / "a.tar.gz", credit=f"{user} and others")


def test_words_of_ours_do_not_stop_one_who_is_called_like_them(study, tmp_path, monkeypatch):
    monkeypatch.setattr(contributing.getpass, "getuser", lambda: "kernel")
    monkeypatch.setattr(contributing.socket, "gethostname", lambda: "h200")
    contribute(study(), tmp_path / "a.tar.gz")


def test_a_nested_value_does_not_leave_and_a_setting_that_is_text_only_if_named(study, tmp_path):
    told = {"trained_by": "somebody"}
    sections = {"sections": [["forward", 0], ["backward", 9]], "launches": [0, 1], "passes": ["forward"]}
    archive, _ = contribute(study(model=told, batch=[told], **sections), tmp_path / "a.tar.gz")
    assert json.loads(files_of(archive)["contribution.json"])["workload"] == {"name": WORKLOAD["name"]} | sections
    path = study() / "profile.parquet"
    profile = store.read_profile(path)
    columns = {name: profile.table[name].to_pylist() for name in profile.table.column_names}
    columns |= {"node": ["n1", "n2", "n1"], "power_w": [300.0, 400.0, 300.0]}
    gpu, workload = profile.metadata["gpu"], profile.metadata["workload"]
    store.write_profile(path, columns, gpu, workload, ["core_mhz", "mem_mhz", "node", "power_w"])
    with pytest.raises(InputError, match=r"its setting 'node' is text.*--settings node"):
        contribute(path, tmp_path / "b.tar.gz")
    with pytest.raises(InputError, match="has no setting 'rack'; it has node, power_w"):
        contribute(path, tmp_path / "b.tar.gz", settings=["rack"])
    contribute(path, tmp_path / "b.tar.gz", settings=["node"])
    assert read(tmp_path / "b.tar.gz").columns["node"] == ["n1", "n2", "n1"]


def test_what_a_latency_file_holds_besides_stays(study, tmp_path):
    more = {"protocol": {"repeats": 3, "run_by": "somebody"}, "trials": [LATENCY["trials"][0] | {"node": "n1"}]}
    write_json(tmp_path / "latency.json", LATENCY | more)
    texts = files_of(contribute(study(), tmp_path / "a.tar.gz", latency=tmp_path / "latency.json")[0])
    found = json.loads(texts["latency.json"])
    assert found["protocol"] == {"repeats": 3} and found["trials"] == LATENCY["trials"][:1]
    assert (found["domains"], found["transitions"]) == (LATENCY["domains"], LATENCY["transitions"])


def test_a_secret_is_its_owners_alone_from_the_beginning(study, tmp_path, monkeypatch):
    seen = []
    real = os.fdopen
    monkeypatch.setattr(contributing.os, "fdopen", lambda fd, *a: seen.append(os.fstat(fd).st_mode) or real(fd, *a))
    contribute(study(), tmp_path / "a.tar.gz", salt=tmp_path / "new" / "salt")
    assert [mode & 0o777 for mode in seen][:1] == [0o600]
    assert len((tmp_path / "new" / "salt").read_text().strip()) >= 32


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"abc123\n", b"\xff" * 40, b"not hexadecimal, though it is long enough"]
)
def test_what_is_no_secret_is_refused_and_kept(study, tmp_path, content):
    (tmp_path / "salt").write_bytes(content)
    with pytest.raises(InputError, match=r"no secret of at least 32 hex digits.*--salt"):
        contribute(study(), tmp_path / "a.tar.gz", salt=tmp_path / "salt")
    assert (tmp_path / "salt").read_bytes() == content


def test_the_latency_of_another_gpu_or_of_a_dry_run_does_not_go_along(study, tmp_path):
    other = LATENCY | {"gpu": LATENCY["gpu"] | {"name": "NVIDIA A100"}}
    none = "not a kernel-dvfs/latency/1 file; kernel-dvfs latency makes it"
    for found, message in ((other, "of NVIDIA A100, the study is of NVIDIA H200"), ({"schema": "x"}, none)):
        write_json(tmp_path / "latency.json", found)
        with pytest.raises(InputError, match=message):
            contribute(study(), tmp_path / "a.tar.gz", latency=tmp_path / "latency.json")


def test_simulated_measurements_are_not_collected(study, tmp_path):
    with pytest.raises(InputError, match="of a simulated GPU; only what a real one measured is collected"):
        contribute(study(kind="simulated"), tmp_path / "a.tar.gz")


IMPLAUSIBLE = [
    ([point("a", None, 1e-3, 1.1)], r"mean power 1100 W, expected 3 to 1050 W"),
    ([point("a", None, 1.0, 0.9)], r"mean power 0.9 W, expected 3 to"),
    ([point("a", None, 1e-3, 0.5), point("a", 1500.0, 1e-3, 0.5, reached_core_mhz=1980.0)], "reached 1980 MHz, more"),
    ([point("a", None, 1e-3, 0.5, reached_core_mhz=1.98e6)], "a clock of None MHz, reached 1980000.0; expected 1 to"),
    ([point("a", None, 1e-3, 0.5, energy_sd_j=0.4)], "energy_j scatters by 80 %"),
    ([point("a", None, 1e-3, 0.5), point("b", 1500.0, 1e-3, 0.5)], "kernel/b has no baseline"),
    ([point("a", None, 1e-3, 0.5, verdict="disturbed")], "1 of 1 points have a verdict other than ok"),
]


@pytest.mark.parametrize(("points", "message"), IMPLAUSIBLE)
def test_what_no_board_measures_is_refused_by_who_sends_and_by_who_reads(study, tmp_path, monkeypatch, points, message):
    folder = study(points)
    with pytest.raises(InputError, match=message):
        contribute(folder, tmp_path / "a.tar.gz")
    with monkeypatch.context() as unchecked:
        unchecked.setattr(contributing, "plausible", lambda *_: [])
        archive, _ = contribute(folder, tmp_path / "a.tar.gz")
    with pytest.raises(InputError, match=message):
        read(archive)


def test_an_archive_that_was_changed_or_is_none_is_refused_in_a_line(study, tmp_path):
    archive, _ = contribute(study(), tmp_path / "a.tar.gz")
    good = files_of(archive)
    about = json.loads(good["contribution.json"])
    cases = {
        "profile.csv was changed": {**good, "profile.csv": good["profile.csv"].replace("0.2269", "0.1269")},
        r"no contribution\.json in it": {"profile.csv": good["profile.csv"]},
        "not a kernel-dvfs/contribution/1 file": {**good, "contribution.json": json.dumps(about | {"schema": "x"})},
        "its licence is 'all rights reserved'": {
            **good,
            "contribution.json": json.dumps(about | {"licence": "all rights reserved"}),
        },
        "files: ": {**good, "latency.json": "{}"},
        r"boards\[0\] is 'GPU-0fca33e6.*, expected board- and 16 hex digits": {
            **good,
            "contribution.json": json.dumps(about | {"boards": [UUID]}),
        },
    }
    for message, texts in cases.items():
        with pytest.raises(InputError, match=message) as refused:
            read(packed(tmp_path / "bad.tar.gz", texts))
        assert "docs/tables.md" in str(refused.value) and "\n" not in str(refused.value)
    for names in ({"profile.csv": "../../profile.csv"}, {"profile.csv": "x/evil.sh"}):
        with pytest.raises(InputError, match=r"expected contribution\.json, profile\.csv, latency\.json alone"):
            read(packed(tmp_path / "bad.tar.gz", good, names))
    broken = {
        "contribution.json: rows is missing": {key: value for key, value in about.items() if key != "rows"},
        "rows is 0, expected a whole number >= 1": about | {"rows": 0},
        r"rows is 3\.0, expected a whole number >= 1": about | {"rows": 3.0},
        "files is 5, expected a group of fields": about | {"files": 5},
        r"files is \[1, 'a'\], expected a group of fields": about | {"files": [1, "a"]},
        r"settings\[2\] is \['x'\], expected a text that is not empty": about
        | {"settings": ["core_mhz", "mem_mhz", ["x"]]},
        "board.power_limit_mw is True, expected a positive number or null": about
        | {"board": about["board"] | {"power_limit_mw": True}},
    }
    for message, changed in broken.items():
        with pytest.raises(InputError, match=message) as refused:
            read(packed(tmp_path / "bad.tar.gz", {**good, "contribution.json": json.dumps(changed)}))
        assert "\n" not in str(refused.value)
    (tmp_path / "no.tar.gz").write_bytes(b"no archive")
    with pytest.raises(InputError, match=r"not a readable \.tar\.gz archive"):
        read(tmp_path / "no.tar.gz")


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        ("target", "", "line 2: target is empty"),
        ("time_s", "", "line 2: time_s is empty"),
        ("time_s", "nan", "time and energy are not positive"),
        ("n", "3.5", "line 2: n is '3.5'"),
        ("n", "9" * 25, "line 2: n is '9999"),
        ("is_baseline", "2", "line 2: is_baseline is '2'"),
        ("verdict", "x" * 140_000, "field larger than field limit"),
    ],
)
def test_a_cell_that_is_none_is_named(study, tmp_path, column, cell, message):
    texts = files_of(contribute(study(), tmp_path / "a.tar.gz")[0])
    lines = [line.split(",") for line in texts["profile.csv"].splitlines()]
    lines[1][lines[0].index(column)] = cell
    changed = "".join(",".join(line) + "\n" for line in lines)
    about = json.loads(texts["contribution.json"])
    about["files"]["profile.csv"] = hashlib.sha256(changed.encode()).hexdigest()
    texts |= {"profile.csv": changed, "contribution.json": json.dumps(about)}
    with pytest.raises(InputError, match=message):
        read(packed(tmp_path / "bad.tar.gz", texts))


def test_a_sparse_member_is_refused_before_it_is_read(study, tmp_path):
    good = files_of(contribute(study(), tmp_path / "a.tar.gz")[0])
    content = good["profile.csv"].encode()
    head = tarfile.TarInfo("x/profile.csv")
    head.size, head.type = len(content), tarfile.GNUTYPE_SPARSE
    block = bytearray(head.tobuf(tarfile.GNU_FORMAT))
    # one piece at 0, and 1 TiB as what it would be unpacked
    block[386:410] = b"%011o\0%011o\0" % (0, len(content))
    block[483:495] = b"\x80" + (1 << 40).to_bytes(11, "big")
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    plain = bytes(block) + content + bytes(-len(content) % 512 + 1024)
    (tmp_path / "s.tar.gz").write_bytes(gzip.compress(plain))
    with pytest.raises(InputError, match=r"'x/profile\.csv' is larger than the archive that holds it"):
        read(tmp_path / "s.tar.gz")


def test_a_latency_file_that_is_none_is_refused_before_anything_is_written(study, tmp_path):
    write_json(tmp_path / "latency.json", LATENCY)
    good = files_of(contribute(study(), tmp_path / "a.tar.gz", latency=tmp_path / "latency.json")[0])
    about = json.loads(good["contribution.json"])
    other = json.dumps(json.loads(good["latency.json"]) | {"gpu": LATENCY["gpu"] | {"name": "NVIDIA A100"}})
    for text, message in (
        ("{}", "latency.json: not a kernel-dvfs/latency/1 file"),
        (other, "of NVIDIA A100, the rest is of NVIDIA H200"),
    ):
        files = about["files"] | {"latency.json": hashlib.sha256(text.encode()).hexdigest()}
        texts = {**good, "latency.json": text, "contribution.json": json.dumps(about | {"files": files})}
        with pytest.raises(InputError, match=message):
            import_contribution(packed(tmp_path / "bad.tar.gz", texts), tmp_path / "out" / "p.parquet")
        assert not (tmp_path / "out").exists()


def test_what_a_step_drew_at_its_most_is_shared(study, tmp_path):
    """The limit of a board is kept on average; a difference of two windows is bound by none."""
    step = point("forward", None, 1e-3, 1.3, study="pass")
    most = point("wgrad", None, 318.101e-6, 0.275859642)
    paced = point("paced_wgrad", None, 1e-3, 1.3, study="step")
    contribute(study([most, step, paced], by_difference={"forward": "why"}), tmp_path / "a.tar.gz")
    assert len(read(tmp_path / "a.tar.gz").columns["target"]) == 3
    with pytest.raises(InputError, match="mean power 2600 W, expected 3 to 2500 W"):
        contribute(study([most, point("paced_wgrad", None, 1e-3, 2.6, study="step")]), tmp_path / "a.tar.gz")
    with pytest.raises(InputError, match="pass/forward at auto/auto MHz: mean power 1300 W, expected 3 to 1050 W"):
        contribute(study([step]), tmp_path / "a.tar.gz")


def test_every_truncation_of_an_archive_is_refused(study, tmp_path):
    content = Path(contribute(study(), tmp_path / "a.tar.gz")[0]).read_bytes()
    cut = tmp_path / "cut.tar.gz"
    for length in range(0, len(content), 37):
        cut.write_bytes(content[:length])
        with pytest.raises(InputError):
            read(cut)


def test_a_collection_holds_the_same_files_in_a_folder(study, tmp_path):
    contribute(study(), tmp_path / "collection" / "one")
    archive, _ = contribute(study(), tmp_path / "a.tar.gz")
    assert read(tmp_path / "collection" / "one") == read(archive)


def test_the_commands_pack_and_unpack_and_clocks_can_be_chosen(study, tmp_path, monkeypatch, capsys):
    write_json(tmp_path / "latency.json", LATENCY)
    archive, profile = str(tmp_path / "a.tar.gz"), str(tmp_path / "b.parquet")
    words = ["--latency", str(tmp_path / "latency.json"), "--credit", "A. Lab", "-o", archive]
    monkeypatch.setattr(sys, "argv", ["contribute.py", str(study()), *words])
    contributing.main()
    assert "look into it, then send it" in capsys.readouterr().err
    assert main(["import", archive, "-o", profile]) == 0
    assert "credit A. Lab" in capsys.readouterr().err
    assert latency_file.read(tmp_path / "b-latency.json").stall_s("core") == pytest.approx(0.02)
    assert (
        main(["choose", profile, "--scope", "global", "--objective", "waste", "-o", str(tmp_path / "schedule.json")])
        == 0
    )
    assert main(["import", archive, "--units", "time_s=ms", "-o", profile]) == 2


def test_every_entry_of_the_collection_is_readable_and_listed(root):
    listed = (root / "experiments/collection" / "README.md").read_text("utf-8")
    entries = sorted(path.parent for path in (root / "experiments/collection").glob("*/*/contribution.json"))
    assert entries
    for entry in entries:
        found = read(entry)
        name = entry.relative_to(root / "experiments/collection").as_posix()
        assert f"| [{name}]({name}/) | {found.board['name']} |" in listed
