"""Files are whole or absent, and JSON that readers would understand differently is refused."""

import json
import os
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_dvfs import layout
from kernel_dvfs.measurement import request
from kernel_dvfs_clocks.errors import InputError, one_line
from kernel_dvfs_clocks.files import (
    check_size,
    compact_json,
    inside,
    is_part,
    parse_json,
    parse_yaml,
    read_json,
    usable_folder,
    whole,
    writable,
    write_json,
    write_text,
)
from kernel_dvfs_clocks.nvml.lease import path_of

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_what_is_written_is_read_back(tmp_path_factory, value):
    assert compact_json(value) == json.dumps(value)
    path = tmp_path_factory.getbasetemp() / "value.json"
    path.write_text(f"\n {json.dumps(value)} \n", encoding="utf-8")
    assert read_json(path) == value


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [float("-inf")]}, {"a": object()}])
def test_what_is_not_json_is_refused(value, tmp_path):
    with pytest.raises((ValueError, TypeError)):
        compact_json(value)
    with pytest.raises((ValueError, TypeError)):
        write_json(tmp_path / "x.json", value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "{", '{"a": }', "1 2", "nonsense", '{"a": 1}}'])
def test_broken_json_is_a_value_error(text, tmp_path):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ValueError):
        read_json(tmp_path / "x.json")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "deep" / "x.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError), whole(path) as temporary:
        with open(temporary, "w") as file:
            file.write("half")
        raise RuntimeError
    assert path.read_text() == "old" and list(path.parent.iterdir()) == [path]


def test_where_a_file_cannot_be_written_the_error_names_it_and_not_what_stands_for_it(tmp_path):
    path = tmp_path / "x.json"
    with pytest.raises(FileNotFoundError) as no, whole(path) as temporary:
        raise FileNotFoundError(2, "No such file or directory", temporary)
    assert str(path) in str(no.value) and f".{os.getpid()}-" not in str(no.value)


def test_where_a_disk_is_full_the_error_names_the_file(tmp_path):
    path = tmp_path / "x.json"
    with pytest.raises(OSError) as no, whole(path), open("/dev/full", "w") as full:
        full.write("x")
    assert str(no.value) == f"[Errno 28] No space left on device: '{path}'" and not list(tmp_path.iterdir())


TOO_LARGE = ['{"a": 1e999}', f"[{10**308}]", f"[-{10**400}]", f"[{'1' * 5000}]"]


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"a": NaN}', '{"a": -Infinity}', "[" * 100000, *TOO_LARGE])
def test_json_that_readers_would_understand_differently_is_refused(text):
    with pytest.raises(ValueError):
        parse_json(text)


def test_a_whole_number_that_is_a_float_too_is_read(text=f"[{10**308 - 1}, {1 - 10**307}]"):
    assert parse_json(text) == [10**308 - 1, 1 - 10**307] and all(map(float, parse_json(text)))


# what a few lines hold by aliases: ten times as much each, to 10^12
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]\n" for k in range(1, 12)
)


# the same by pairs, which are tuples
PAIRS = "- &x0 !!pairs [k: v, l: v]\n" + "".join(
    f"- &x{k} !!pairs [k: *x{k - 1}, l: *x{k - 1}]\n" for k in range(1, 30)
)
TWICE = "a: {b: 1, c: 2, b: 3}"
UNREADABLE = [
    BOMB,
    PAIRS,
    TWICE,
    "&a [*a]",
    "a: &b {c: *b}",
    "[" * 10000,
    "a: [",
    f"a: {10**308}",
    "2026-02-31",
    "- \x00",
]


@pytest.mark.slow
@pytest.mark.parametrize("text", UNREADABLE)
def test_yaml_that_nobody_could_go_through_is_refused(text):
    with pytest.raises(ValueError):
        parse_yaml(text)


def test_a_list_that_holds_itself_many_times_over_is_refused_before_it_is_laid_out():
    held = []
    held += [held] * 5000
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="holds itself"):
            check_size(held)
        assert tracemalloc.get_traced_memory()[1] < 10e6
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_yaml_may_have_aliases_and_much_in_it():
    assert parse_yaml("a: &a {b: 1}\nc: {<<: *a, b: 2}\nd: {1: x, '1': y}") == {
        **{"a": {"b": 1}, "c": {"b": 2}, "d": {1: "x", "1": "y"}}
    }
    text = "a: &a {b: [1, 2.5, yes, null]}\nc: [*a, *a]\nd: [" + ", ".join(map(str, range(20_000))) + "]"
    own = {"b": [1, 2.5, True, None]}
    assert parse_yaml(text) == {"a": own, "c": [own, own], "d": [*range(20_000)]}


def test_json_is_read_as_the_standard_library_does():
    text = '{"a": [1, -2.5e3, true, null, "\\u00e4"], "b": {"a": {}}}'
    assert parse_json(text) == json.loads(text)


def test_what_must_survive_a_loss_of_power_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    done, sync, replace = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: done.append(os.readlink(f"/proc/self/fd/{file}")) or sync(file))
    monkeypatch.setattr(os, "replace", lambda *names: done.append("named") or replace(*names))
    write_text(tmp_path / "quick", "text")
    assert done == ["named"]
    write_text(tmp_path / "slow", "text", durable=True)
    assert done[1:] == [f"{tmp_path}/.{os.getpid()}-slow", "named", str(tmp_path)]


def test_a_name_that_is_no_utf_8_can_be_written_of(tmp_path):
    write_text(tmp_path / "a", os.fsdecode(b"caf\xe9"))
    assert (tmp_path / "a").read_text("utf-8") == "caf\\udce9"


def test_a_pipe_is_written_into_and_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "text")
    assert os.read(reader, 9) == b"text" and pipe.is_fifo()
    os.close(reader)


def test_a_folder_that_is_a_link_to_nowhere_a_file_or_read_only_is_one_line(tmp_path, monkeypatch):
    usable_folder(str(tmp_path / "made/below"))
    usable_folder(str(tmp_path / "made"))
    (tmp_path / "dangling").symlink_to("nowhere/at/all")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="dangling: is a link to nowhere"):
        usable_folder(str(tmp_path / "dangling"))
    with pytest.raises(InputError, match="file: File exists"):
        usable_folder(str(tmp_path / "file"))
    monkeypatch.setattr(os, "access", lambda *_: False)  # as root sees a file system that is read-only
    with pytest.raises(InputError, match="made: cannot be written into"):
        usable_folder(str(tmp_path / "made"))


def test_what_a_terminal_would_obey_is_shown_instead():
    assert str(InputError("a\x1b[2Jb\nc\u202ed \udce9")) == r"a\x1b[2Jb c\u202ed \udce9"
    assert one_line("é über 3 °C · ok") == "é über 3 °C · ok"


@pytest.mark.parametrize("name", ["forward_fc_gemm", "auto-auto", "iteration-0.5ms.json", "GPU-fa4e0000-00", "a" * 120])
def test_a_name_may_be_a_part_of_a_path(name):
    assert is_part(name) and inside(f"x/{name}") == f"x/{name}"


@pytest.mark.parametrize(
    "name",
    [
        *("..", ".", "", ".hidden", "-rf", "a/../b", "a b", "a\nb", "$(touch x)", "a" * 121, "a\0b", "\x1b[2J", "~"),
        *("/etc/passwd", "a//b", "a/", "é", "٣", "a;b", "a'b", "{a}", "*"),
    ],
)
def test_nothing_else_leads_into_a_folder(name):
    with pytest.raises(InputError, match="path") as error:
        inside(f"x/{name}")
    assert len(str(error.value).splitlines()) == 1 and str(error.value).isprintable()


@pytest.mark.parametrize("name", ["../../x", "$(touch x)", "a\n"])
def test_every_path_of_a_study_is_made_of_such_names(name):
    one = request.PointRequest("kernel", name, 900, 5001, (0,))
    folder = layout.Folder("results/gpu/model")
    for make in (
        lambda: request.path(one, 0),
        lambda: folder.schedule(name),
        lambda: layout.locking("range", name, 1),
        lambda: layout.carried(name, "gelu", 3, 1),
        lambda: path_of(name),
    ):
        with pytest.raises(InputError):
            make()


def test_a_temporary_name_follows_no_link(tmp_path):
    """Whoever knows it in advance, in a folder that others may write to, cannot have another file written."""
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (tmp_path / f".{os.getpid()}-r.json").symlink_to(victim)
    write_json(tmp_path / "r.json", {"a": 1})
    assert victim.read_text() == "kept" and read_json(tmp_path / "r.json") == {"a": 1}
    assert not (tmp_path / "r.json").is_symlink() and sorted(os.listdir(tmp_path)) == ["r.json", "victim"]


@pytest.mark.parametrize("place", ["folder", "file/x.json"])
def test_a_place_that_can_never_be_written_is_refused_at_once(tmp_path, place):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"name a file|make it a folder"):
        writable(str(tmp_path / place))
    writable(str(tmp_path / "x.json"))
    assert not (tmp_path / "x.json").exists()
