"""The serving commands: small runs, and bad options as one line."""

import pytest

from kernel_dvfs.cli.main import main


def test_a_profile_by_command(tmp_path):
    path = tmp_path / "profile.csv"
    asked = ["--tp", "8", "--core-mhz", "1200", "--classes", "SS", "--requests", "40", "-o", str(path)]
    assert main(["serving", "profile", *asked]) == 0
    assert path.read_text().startswith("model,gpu,tp,core_mhz,class,tps,power_w")


@pytest.mark.parametrize(
    "asked,said",
    [
        (["--core-mhz", "5000"], "no core clock 5000 MHz"),
        (["--core-mhz", "1200,x"], "--core-mhz 1200,x: expected different whole numbers"),
        (["--core-mhz", "1200", "--classes", "SS,QQ"], "no class 'QQ'"),
        (["--core-mhz", "1200", "--gpu", "rtx_3080_ti"], "no interconnect"),
        (["--core-mhz", "1200", "--model", "gpt3-xl"], "allowed: llama2-13b"),
        (["--core-mhz", "1200", "--tp", "3"], "tp 3 does not split"),
        (["--core-mhz", "1200", "--requests", "3"], "--requests 3: expected at least 20"),
        (["--core-mhz", "1200", "--chunk-tokens", "256"], "must hold more tokens than the batch"),
    ],
)
def test_bad_options_are_one_line_and_leave_nothing(asked, said, tmp_path, capsys):
    assert main(["serving", "profile", *asked, "-o", str(tmp_path / "p.csv")]) == 2
    text = capsys.readouterr().err
    assert said in text and text.startswith("error: ") and text.count("\n") == 1
    assert not list(tmp_path.iterdir())
