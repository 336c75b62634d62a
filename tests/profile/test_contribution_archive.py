"""A contribution as a folder, or an archive, of files that were written by hand: each cell is what its column says."""

import gzip
import hashlib
import io
import json
import tarfile

import pytest

from kernel_dvfs.cli.main import main
from kernel_dvfs.errors import InputError
from kernel_dvfs.profile import contribution
from kernel_dvfs.profile.contribution import import_contribution, is_contribution, read
from kernel_dvfs.profile.store import COLUMNS, read_profile

HEAD = ",".join((*COLUMNS, "fan", "power_cap_w"))
ROWS = [
    "kernel,gelu,24,,,1980,,0.000326,0.000001,0.2269,,3,ok,,1,0.0000005,,7,650.5",
    "kernel,gelu,24,1500,2619,1485.5,2619,0.00034,,0.2,0.003,2,ok,halves,0,0,0.001,low,",
    "pass,forward,1,,,,,0.0125,,6.25,,1,ok,,1,,,,700",
]
ABOUT = {"schema": "kernel-dvfs/contribution/1", "licence": "CC-BY-4.0", "credit": "", "date": "2026-11-21"}
ABOUT |= {"board": {"name": "NVIDIA H200", "power_limit_mw": 700_000}, "boards": ["board-0123456789abcdef"]}
ABOUT |= {"workload": {"name": "w"}, "settings": ["core_mhz", "mem_mhz", "fan", "power_cap_w"]}
SPREAD = {"n": 3, "mean": 0.012, "median": 0.011, "p5": 0.01, "p95": 0.02, "max": 0.03}
LATENCY = {"schema": "kernel-dvfs/latency/1", "started_utc": "2026-11-22"}
LATENCY |= {"gpu": {"name": "NVIDIA H200", "uuid": "GPU-9fca33e6", "driver": "580"}}
LATENCY |= {"domains": {"core": {"n": 3, "missed": 1, "settled_s": SPREAD, "stall_s": SPREAD}}}


@pytest.fixture
def folder(tmp_path):
    """folder(lines, latency, head, **about): a contribution with these files, and with their checksums."""

    def make(lines=ROWS, latency=None, head=HEAD, **about):
        texts = {"profile.csv": "\n".join([head, *lines]) + "\n"}
        if latency:
            texts["latency.json"] = json.dumps(latency)
        path = tmp_path / "mine"
        path.mkdir(exist_ok=True)
        for name, text in texts.items():
            (path / name).write_text(text)
        files = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
        about = ABOUT | {"rows": len(lines), "files": files} | about
        (path / "contribution.json").write_text(json.dumps(about))
        return path

    return make


def changed(column, cell):
    """The rows with one cell of the second replaced."""
    cells = ROWS[1].split(",")
    cells[HEAD.split(",").index(column)] = cell
    return [ROWS[0], ",".join(cells), ROWS[2]]


def test_each_cell_is_read_as_what_its_column_holds(folder, tmp_path):
    path = folder()
    found, lines = import_contribution(path, tmp_path / "p.parquet")
    profile = read_profile(tmp_path / "p.parquet")
    table = profile.table.to_pydict()
    assert list(zip(*(table[name] for name in COLUMNS[:9]))) == [
        ("kernel", "gelu", 24, None, None, 1980.0, None, 3.26e-4, 1e-6),
        ("kernel", "gelu", 24, 1500.0, 2619.0, 1485.5, 2619.0, 3.4e-4, None),
        ("pass", "forward", 1, None, None, None, None, 0.0125, None),
    ]
    assert list(zip(*(table[name] for name in (*COLUMNS[9:], "fan", "power_cap_w")))) == [
        (0.2269, None, 3, "ok", None, True, 5e-7, None, "7.0", 650.5),
        (0.2, 0.003, 2, "ok", "halves", False, 0.0, 0.001, "low", None),
        (6.25, None, 1, "ok", None, True, None, None, None, 700.0),
    ]
    assert profile.metadata["gpu"] == {"kind": "table", "name": "NVIDIA H200", "slug": "table-mine"}
    assert is_contribution(path) and is_contribution("any.tgz") and not is_contribution(tmp_path)
    assert found.latency is None and len(lines) == 2 and not (tmp_path / "p-latency.json").exists()
    assert lines[0].startswith(f"{path}: 2 targets of NVIDIA H200, 3 points, 2 of them the baseline; driver unknown, ")


def test_a_latency_file_goes_beside_the_profile_and_its_board_is_the_same(folder, tmp_path):
    found, lines = import_contribution(folder(latency=LATENCY), tmp_path / "p.parquet", "Other name")
    assert found.latency == LATENCY
    assert (tmp_path / "p-latency.json").read_text() == json.dumps(LATENCY, indent=1) + "\n"
    assert len(lines) == 3 and lines[2].startswith(f"{tmp_path}/p-latency.json: ")
    assert read_profile(tmp_path / "p.parquet").metadata["gpu"]["slug"] == "table-other-name"
    with pytest.raises(InputError, match=r"latency\.json: of NVIDIA A100, the rest is of NVIDIA H200"):
        read(folder(latency=LATENCY | {"gpu": LATENCY["gpu"] | {"name": "NVIDIA A100"}}))


@pytest.mark.parametrize(
    ("column", "cell", "value"),
    [
        ("n", "9223372036854775807", 2**63 - 1),
        ("n", "9223372036854775808", None),
        ("n", "-9223372036854775808", -(2**63)),
        ("n", "-9223372036854775809", None),
        ("n", "2.0", None),
        ("n", "", None),
        ("is_baseline", "1", True),
        ("is_baseline", "2", None),
        ("is_baseline", "0", False),
        ("is_baseline", "true", None),
        ("reached_core_mhz", "fast", None),
        ("reached_core_mhz", "", ""),
        ("fan", "-3.5", "-3.5"),
    ],
)
def test_a_cell_is_of_its_columns_kind_or_named_with_its_line(folder, column, cell, value):
    """None: refused. A further setting is text where any of its cells is; here all three are none or numbers."""
    path = folder(changed(column, cell))
    if value is None:
        with pytest.raises(InputError, match=rf"profile\.csv, line 3: {column} is ({cell!r}|empty); get it again"):
            read(path)
    else:
        found = read(path).columns[column]
        assert found[1] == (None if value == "" else float(value) if column == "fan" else value)
        assert found[2] == {"n": 1, "is_baseline": True}.get(column)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"lines": ROWS[:2], "head": HEAD.replace("fan,", "")}, "its columns are not those of a profile: study, "),
        ({"lines": [ROWS[0], ROWS[1] + ","]}, r"line 3: 20 cells, 19 columns"),
        ({"lines": [ROWS[0][:-6]]}, r"line 2: 18 cells, 19 columns"),
        ({"rows": 4}, r"profile\.csv: 3 rows, contribution\.json says 4"),
        ({"files": {"profile.csv": "0" * 64}}, r"profile\.csv was changed: its checksum is another"),
        (
            {"files": dict.fromkeys(("latency.json", "profile.csv"), "0" * 64)},
            r"files: \['latency\.json', 'profile\.csv'\] are named, \['profile\.csv'\] are there",
        ),
        ({"schema": "kernel-dvfs/profile/1"}, "not a kernel-dvfs/contribution/1 file"),
        ({"licence": "MIT"}, "its licence is 'MIT', expected CC-BY-4.0"),
        ({"date": "21.11.2026"}, "date is '21.11.2026', expected a day"),
        ({"settings": ["mem_mhz", "core_mhz", "fan"]}, "settings is .*, expected core_mhz, mem_mhz and"),
        ({"settings": ["core_mhz", "mem_mhz", "fan", "fan"]}, "expected core_mhz, mem_mhz and names of no"),
        ({"settings": ["core_mhz", "mem_mhz", "time_s"]}, "expected core_mhz, mem_mhz and names of no"),
    ],
)
def test_a_contribution_whose_parts_do_not_agree_is_refused(folder, more, said):
    with pytest.raises(InputError, match=said):
        read(folder(**more))


def packed(path, members):
    """An archive of (name, text) in this order; None: a folder, "": a link to the first one."""
    with tarfile.open(path, "w:gz") as archive:
        for name, text in members:
            about = tarfile.TarInfo(name)
            if text is None:
                about.type = tarfile.DIRTYPE
            elif not text:
                about.type, about.linkname = tarfile.SYMTYPE, members[0][0]
            else:
                about.size = len(text.encode())
            archive.addfile(about, io.BytesIO((text or "").encode()))
    return path


def test_an_archive_is_read_as_its_folder_is_and_holds_nothing_else(folder, tmp_path, monkeypatch):
    made, path = folder(latency=LATENCY), tmp_path / "mine.tar.gz"
    texts = [(file.name, file.read_text()) for file in made.iterdir()]
    within = [("mine", None), *((f"mine/{name}", text) for name, text in texts)]
    for members in (texts, within):
        assert read(packed(path, members)) == read(made)
    assert import_contribution(path, tmp_path / "p.parquet")[1][0].startswith(f"{path}: 2 targets of NVIDIA H200")
    assert read_profile(tmp_path / "p.parquet").metadata["gpu"]["slug"] == "table-mine"
    more = (("a/b/profile.csv", "x"), ("mine/other.csv", "x"), ("other/profile.csv", "x"), ("mine/x.csv", ""))
    for name, text in more:
        with pytest.raises(InputError, match=f"holds '{name}'; expected contribution.json, profile.csv, latency.json"):
            read(packed(path, [*within, (name, text)]))
    with pytest.raises(InputError, match="holds 'a/mine/"):
        read(packed(path, [(f"a/mine/{name}", text) for name, text in texts]))
    packed(path, within)
    plain = len(gzip.decompress(path.read_bytes()))
    monkeypatch.setattr(contribution, "_LARGEST_BYTE", plain)
    assert read(path) == read(made)
    monkeypatch.setattr(contribution, "_LARGEST_BYTE", plain - 1)
    with pytest.raises(InputError, match=f"holds more than {plain - 1} bytes"):
        read(path)


def test_no_name_in_it_is_obeyed_by_a_terminal(folder, tmp_path, capsys):
    """Of a board, a workload, a kernel, whom to credit."""
    evil = "\x1b[2J\u202eok"
    rows = [line.replace("gelu", evil) for line in ROWS]
    path = folder(rows, board={"name": evil, "driver": evil}, workload={"name": evil}, credit=evil)
    profile = str(tmp_path / "p.parquet")
    commands = [["import", str(path), "-o", profile], ["choose", profile], ["choose", profile, "--json"]]
    commands += [["choose", profile, "-o", str(tmp_path / "s.json")], ["report", profile, str(tmp_path / "s.json")]]
    for words in commands:
        assert main(words) == 0, words
        said = "".join(capsys.readouterr())
        assert said.replace("\n", "").isprintable() and said, (words, said)
