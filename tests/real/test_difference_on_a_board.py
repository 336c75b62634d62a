"""A pass measured as the difference of two loads on a fake board is what it takes alone."""

import hashlib
import json

import pytest


@pytest.mark.parametrize("pair", ["auto,auto", "1500,2201"])
def test_a_difference_is_what_the_pass_takes_alone(lab, pair):
    made = lab()
    made.measure("auto,auto")
    setup = made.folder / made.setup()

    def measured(**workload):
        content = json.loads(setup.read_text())
        content["workload"] |= {"step": {"file": "s.json", "checksum": "0" * 12, "code": ""}} | workload
        text = json.dumps(content)
        path = setup.with_name(f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.json")
        path.write_text(text)
        made.stop()
        done, record = made.measure(pair, target="pass/backward", gpu=str(path))
        assert done.returncode == 0, done.stderr
        return record

    alone, record = measured(), measured(by_difference={"backward": "it overwrites what it reads"})
    assert record["verdict"] == alone["verdict"] == "ok"
    for window in record["windows"]:
        with_it, before = window["with_beginning"]["time_us"], window["beginning"]["time_us"]
        assert with_it - before == pytest.approx(window["time_us"], rel=1e-9)
    # 0.05 % of noise a load, of which the longer one is a multiple of the pass
    for name, rel in (("time_us", 0.005), ("energy_mj", 0.01), ("power_mw", 0.01)):
        assert record["summary"][name] == pytest.approx(alone["summary"][name], rel=rel)
    # at the power cap the clock moves in steps of 15 MHz
    assert record["reached"]["core_mhz"] == pytest.approx(alone["reached"]["core_mhz"], abs=15)
