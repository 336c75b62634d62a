"""A setup is what its name says: a damaged one is refused, and rewritten when it is stored again."""

import json
import os
import re

import pytest

from kernel_dvfs.measurement.setup import content, read, store
from kernel_dvfs_clocks.errors import InputError

PARTS = {"gpu": {"kind": "simulated"}, "workload": {"name": "w"}, "targets": {"kernel": {}, "pass": {}}}


def stored(folder):
    return store(str(folder), *PARTS.values(), {"seed": 1})


def test_a_damaged_setup_is_rewritten_and_a_whole_one_left_alone(tmp_path):
    path = stored(tmp_path)
    whole = read(path)
    os.utime(path, (1, 1))
    assert stored(tmp_path) == path and os.stat(path).st_mtime == 1
    with open(path, "w") as file:
        file.write('{"schema": "kernel-dvfs/setup/1"')
    with pytest.raises(InputError, match="snakemake rewrites it, run it again"):
        read(path)
    stored(tmp_path)
    assert read(path) == whole


@pytest.mark.parametrize("text", ["", "[]", "null", '{"schema": "other"}', '{"schema": "kernel-dvfs/setup/1"}'])
def test_what_is_no_setup_is_refused(tmp_path, text):
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"s\.json.*rewrites"):
        read(str(path))


@pytest.mark.parametrize("name", ["gpu", "workload", "targets", "measurement", "kernel", "pass"])
@pytest.mark.parametrize("value", [None, []])
def test_a_group_that_is_missing_is_named(tmp_path, name, value):
    path = stored(tmp_path)
    with open(path) as file:
        found = json.load(file)
    field = f"targets.{name}" if name in found["targets"] else name
    (found["targets"] if name in found["targets"] else found)[name] = value
    with open(path, "w") as file:
        json.dump(found, file)
    with pytest.raises(
        InputError,
        match=rf"\.json: {field} is {re.escape(repr(value))}, expected a group of fields; snakemake rewrites it",
    ):
        read(path)


def test_the_content_of_a_setup_is_known_before_it_is_written(tmp_path):
    digest, text = content(*PARTS.values(), {"seed": 1})
    assert not list(tmp_path.iterdir())
    path = stored(tmp_path)
    assert os.path.basename(path) == f"{digest}.json" and read(path).digest == digest
    with open(path) as file:
        assert file.read() == text
    assert content(*PARTS.values(), {"seed": 2})[0] != digest


def test_a_setup_without_a_number_is_refused(tmp_path):
    with pytest.raises(ValueError):
        content(*PARTS.values(), {"window_s": float("nan")})
