"""Headings, cells and workloads of other people's tables: read as they are, or refused with the remedy in the line."""

import shlex

import pytest

from kernel_dvfs.cli.main import main
from kernel_dvfs.profile.store import read_profile
from kernel_dvfs.profile.table import import_table
from kernel_dvfs_clocks.errors import InputError

# one kernel at two core clocks: 230 and 180 W
ROWS = ((1935, 3.0, 0.69), (1515, 3.4, 0.612))


def written(tmp_path, text, name="mine.csv", encoding="utf-8"):
    path = tmp_path / name
    path.write_text(text, encoding=encoding)
    return path


def of_heads(heads, separator=","):
    return "\n".join([heads, *(separator.join(map(str, ("k", *row))) for row in ROWS)]) + "\n"


@pytest.mark.parametrize(
    "heads",
    [
        "kernel,core_mhz,time_ms,energy_j",
        "Kernel,gpu_clock_mhz,Time_MS,Energy_J",
        "KERNEL,GPU_Clock_MHz,time [ms],energy [J]",
        "kernel_name,SM Clock,Runtime (ms),Energy (J)",
        '"Kernel Name","SM Frequency [MHz]","Duration [msec]","Energy [joules]"',
        "kernel,coreF,time/ms,energy/J",
        "kernel,freq_mhz,elapsed_ms,gpu_energy_j",
        "kernel,core_clk,latency_ms,energy_consumed_j",
        "kernel,frequency,kernel_time_milliseconds,board_energy_j",
    ],
)
def test_headings_of_any_case_and_underscores_are_read(tmp_path, heads):
    found = import_table(written(tmp_path, of_heads(heads)), reference="highest").columns
    assert found["core_mhz"] == [1935, 1515] and found["energy_j"] == [0.69, 0.612]
    assert found["time_s"] == pytest.approx([0.003, 0.0034])


@pytest.mark.parametrize(
    ("core", "mem", "per_core", "per_mem", "said"),
    [
        ("core_clock_khz", "mem_clock_khz", 1e3, 1e3, "core_clock_khz in kHz, mem_clock_khz in kHz"),
        ("SM clock [kHz]", "Memory [GHz]", 1e3, 1e-3, "SM clock [kHz] in kHz, Memory [GHz] in GHz"),
        ("gpu_freq_Hz", "memory_clock", 1e6, 1, "gpu_freq_Hz in Hz, memory_clock in MHz"),
    ],
)
def test_a_clock_is_in_the_unit_that_its_heading_names(tmp_path, core, mem, per_core, per_mem, said):
    rows = [f"k,{mhz * per_core:.0f},{9501 * per_mem:.6g},{ms},{joule}" for mhz, ms, joule in ROWS]
    table = "\n".join([f"kernel,{core},{mem},time_ms,energy_j", *rows]) + "\n"
    names = {"mem_mhz": mem} if mem.startswith("Memory [") else {}
    imported = import_table(written(tmp_path, table), reference="highest", columns=names)
    assert imported.columns["core_mhz"] == [1935, 1515]
    assert imported.columns["mem_mhz"] == pytest.approx([9501, 9501])
    assert said in imported.read[-1]


def test_a_clock_that_its_headings_unit_makes_impossible_is_refused_and_what_is_stated_believed(tmp_path, capsys):
    path = written(tmp_path, of_heads("kernel,core clock [kHz],time_ms,energy_j"))
    words = ["import", str(path), "-o", str(tmp_path / "p.parquet"), "--reference", "highest"]
    assert main(words) == 2
    line = capsys.readouterr().err
    assert "'1935' is no clock in kHz (60000 to 50000000)" in line
    assert "state it: --units 'core clock [kHz]=mhz'" in line
    assert main([*words, "--units", "core clock [kHz]=mhz"]) == 0


@pytest.mark.parametrize(
    ("heads", "slow", "fast"),
    [
        ("kernel,mem_clock_khz,core_mhz,time_ms,energy_j", "10501", "14001"),
        ("kernel,mem clock [kHz],core_mhz,time_ms,energy_j", "10501 MHz", "14001 MHz"),
        ("kernel,mem_mhz,core_mhz,time_ms,energy_j", "10501000 kHz", "14001000 kHz"),
        ("kernel,mem clock [Hz],core_mhz,time_ms,energy_j", "10501 kHz", "14001 kHz"),
    ],
)
def test_a_clock_in_another_unit_than_its_headings_is_refused_in_a_line(tmp_path, heads, slow, fast):
    text = f"{heads}\nk,{slow},1935,3.0,0.69\nk,{fast},1515,3.4,0.612\n"
    with pytest.raises(InputError, match=rf"line 2, column mem.clock.*'{slow}'|column mem_mhz: .*'{slow}'") as refused:
        import_table(written(tmp_path, text), reference="highest")
    assert "\n" not in str(refused.value)


def test_a_clock_s_cell_may_repeat_the_unit_of_its_heading(tmp_path):
    text = "kernel,core clock [kHz],time_ms,energy_j\nk,1935000 kHz,3.0,0.69\nk,1515000 kHz,3.4,0.612\n"
    assert import_table(written(tmp_path, text), reference="highest").columns["core_mhz"] == [1935, 1515]
    with pytest.raises(InputError, match=r"line 3, column core clock \[kHz\]: unknown clock '1515 MHz': .* of kHz"):
        import_table(written(tmp_path, text.replace("1515000 kHz", "1515 MHz")), reference="highest")


def test_clocks_in_ghz_are_whole_mhz_and_a_baseline(tmp_path):
    text = "kernel,core clock [GHz],time_ms,energy_j\nk,1.935,3.0,0.69\nk,1.515,3.4,0.612\n"
    imported = import_table(written(tmp_path, text), reference="1515,auto")
    assert imported.columns["core_mhz"] == [1935, 1515] and imported.columns["is_baseline"] == [False, True]


def test_units_are_separated_by_commas(tmp_path):
    text = "kernel,core_mhz,time_ms,energy_mj\nk,1935,3000,690000\nk,1515,3400,612000\n"
    out = tmp_path / "p.parquet"
    words = ["import", str(written(tmp_path, text)), "-o", str(out), "--reference", "highest"]
    assert main([*words, "--units", "time_ms=us,energy_mj=uj"]) == 0
    found = read_profile(out).table.to_pydict()
    assert found["time_s"] == pytest.approx([0.003, 0.0034])
    assert found["energy_j"] == pytest.approx([0.69, 0.612])


@pytest.mark.parametrize(
    ("core", "mem", "units", "scales"),
    [
        ("Frequency, MHz", "mem_mhz", ["Frequency, MHz=khz"], (1000, 1)),
        ("Frequency, MHz", "Memory clock, MHz", ["Frequency, MHz=khz,Memory clock, MHz=khz"], (1000, 1000)),
        ("core clock [kHz]", "mem clock [kHz]", ["core clock [kHz]=mhz,mem clock [kHz]=mhz"], (1, 1)),
        ("core clock [kHz]", "mem clock [kHz]", ["core clock [kHz]=mhz", "mem clock [kHz]=mhz"], (1, 1)),
    ],
)
def test_a_unit_is_stated_by_a_heading_with_commas_and_blanks(tmp_path, core, mem, units, scales):
    rows = "".join(f"k,{mhz * scales[0]},{10501 * scales[1]},{ms},{joule}\n" for mhz, ms, joule in ROWS)
    path, out = written(tmp_path, f'kernel,"{core}","{mem}",time_ms,energy_j\n{rows}'), tmp_path / "p.parquet"
    assert main(["import", str(path), "-o", str(out), "--reference", "highest", "--units", *units]) == 0
    found = read_profile(out).table.to_pydict()
    assert found["core_mhz"] == [1935, 1515] and found["mem_mhz"] == [10501, 10501]


def test_the_remedy_for_a_heading_with_a_comma_is_taken(tmp_path, capsys):
    text = 'kernel,"Frequency, MHz",time_ms,energy_j\nk,1935000,3.0,0.69\nk,1515000,3.4,0.612\n'
    words = ["import", str(written(tmp_path, text)), "-o", str(tmp_path / "p.parquet"), "--reference", "highest"]
    assert main(words) == 2
    remedy = capsys.readouterr().err.partition("state it: ")[2]
    assert main([*words, *shlex.split(remedy)]) == 0


def test_a_baseline_may_be_marked_yes(tmp_path):
    text = "kernel,default,core_mhz,time_ms,energy_j\nk,yes,1935,3.0,0.69\nk,no,1515,3.4,0.612\n"
    imported = import_table(written(tmp_path, text), columns={"is_reference": "default"})
    assert imported.columns["is_baseline"] == [True, False]


def test_a_micro_sign_is_no_second(tmp_path):
    text = of_heads("kernel;core_mhz;Time [µs];Power [W]", ";").replace(";0.69", ";230").replace(";0.612", ";180")
    found = import_table(written(tmp_path, text), reference="highest").columns
    assert found["time_s"] == pytest.approx([3e-6, 3.4e-6]) and found["energy_j"][0] == pytest.approx(690e-6)


def test_megajoules_are_no_millijoules(tmp_path):
    for head in ("energy_MJ", "Energy [MJ]"):
        with pytest.raises(InputError, match=r"missing: energy per launch.*--columns '?energy_mj="):
            import_table(written(tmp_path, of_heads(f"kernel,core_mhz,time_ms,{head}")), reference="highest")


def test_what_no_alias_knows_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, of_heads("what,speed,t,e"))
    words = ["import", "mine.csv", "--reference", "highest", "-o", "p.parquet"]
    assert main([*words, "--columns", "kernel=what,core_mhz=speed", "time_ms=T", "energy_j=e"]) == 0
    assert "speed in MHz; mean power 180 to 230 W" in capsys.readouterr().err
    for wrong, line in (
        ("kernel=who", "mine.csv, line 1: no column 'who', named as kernel; it has what, speed, t, e"),
        ("velocity=speed", "no column 'velocity' to name 'speed' as; columns are kernel, time_s"),
        ("kernel", "--columns kernel: expected COLUMN=HEADING"),
        ("kernel=what,core_mhz=what", "named twice: column 'what', named as core_mhz"),
    ):
        assert main([*words, "--columns", wrong]) == 2
        said = capsys.readouterr().err
        assert line in said and said.count("\n") == 1, said


def test_a_column_that_is_named_comes_before_one_of_that_very_heading(tmp_path):
    text = "appName,coreF,kernel,time_s,power_w\nbs,1530,K,0.5,161\nbs,1830,K,0.44,188\nfft,1530,K,0.7,150\n"
    named = {"kernel": "appName", "core_mhz": "coreF"}
    found = import_table(written(tmp_path, text), reference="highest", columns=named, only={"appName": "bs"})
    assert found.columns["target"] == ["bs", "bs"] and found.columns["core_mhz"] == [1530, 1830]
    assert any("column kernel as headed ignored" in note for note in found.notices)


def test_a_power_that_is_not_the_energy_over_the_time_is_told(tmp_path):
    text = "kernel,core_mhz,time_ms,energy_j,power_w\nk,1410,2.0,0.5,{}\nk,1200,2.2,0.41,190\n"
    told, _ = import_table(written(tmp_path, text.format(171)), reference="highest").notices
    assert "line 2: power_w is '171' where energy over time is 250 W; the energy counts" in told
    assert len(import_table(written(tmp_path, text.format(241)), reference="highest").notices) == 1


def test_more_than_one_gpu_draws_is_told(tmp_path):
    text = "kernel,core_mhz,time_ms,power_w\nk,1410,2.0,{}\nk,1200,2.2,1100\n"
    for power_w, is_told in ((2240, True), (1480, False)):
        notices = import_table(written(tmp_path, text.format(power_w)), reference="highest").notices
        assert any("2.24 kW is more than one GPU is known to draw" in each for each in notices) is is_told


def test_a_cell_with_a_unit_of_two_capitals_is_a_number(tmp_path):
    text = "kernel,core_mhz,time_s,energy_wh\nk,1410,20 s,1.25 Wh\nk,1200,22 s,1 Wh\n"
    assert import_table(written(tmp_path, text), reference="highest").columns["energy_j"] == [4500, 3600]
    with pytest.raises(InputError, match=r"column energy_wh: '1.25 kWh' is not a number; write the number alone"):
        import_table(written(tmp_path, text.replace(" Wh", " kWh")), reference="highest")


def test_a_column_that_is_called_seal_is_the_user_s_own(tmp_path):
    text = "kernel,core_mhz,time_ms,power_w,seal\nk,1410,2.0,240,rubber\nk,1200,2.2,190,rubber\n"
    found = import_table(written(tmp_path, text), reference="highest")
    assert found.columns["time_s"] == [0.002, 0.0022] and any("column seal ignored" in each for each in found.notices)


def test_the_clock_that_was_seen_is_not_taken_for_the_one_that_was_asked(tmp_path):
    with pytest.raises(InputError, match=r"--columns 'core_mhz=clocks.current.sm \[MHz\]'"):
        import_table(written(tmp_path, of_heads("kernel,clocks.current.sm [MHz],time_ms,energy_j")))


def test_limits_of_power_alone_are_settings(tmp_path):
    text = "kernel,power_limit,time_s,power_w\nk,310,5.0,280\nk,240,5.2,221\nk,190,5.9,176\n"
    found = import_table(written(tmp_path, text), reference="highest")
    assert found.settings == ["core_mhz", "mem_mhz", "power_limit"]
    assert found.columns["is_baseline"] == [True, False, False] and found.columns["core_mhz"] == [None] * 3
    assert any("no core clock" in notice for notice in found.notices)


TWO = "app,kernel,batch,core_mhz,time_ms,power_w\n"
TWO += "".join(f"x,k,{batch},{core},{batch * 9 / core},{core / 8}\n" for core in (1935, 1515) for batch in (24, 96))


def test_workloads_in_one_table_are_never_pooled(tmp_path, monkeypatch, capsys):
    """Four rows of two workloads: each is a study of its own; neither leaving the column out nor a copy pools them."""
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, TWO)
    with pytest.raises(InputError, match=r"column batch: '24' in line 2 but '96' here.*--only batch=24"):
        import_table(path, reference="highest")
    without = "\n".join(",".join(line.split(",")[:2] + line.split(",")[3:]) for line in TWO.splitlines()) + "\n"
    with pytest.raises(InputError, match=r"line 3, column time_ms: .* in line 2, both k at 1935 MHz, auto: no repeats"):
        import_table(written(tmp_path, without, "without.csv"), reference="highest")
    for batch in (24, 96):
        found = import_table(path, reference="highest", only={"batch": str(batch)})
        assert found.columns["time_s"] == pytest.approx([batch * 9e-3 / 1935, batch * 9e-3 / 1515])
        assert found.columns["n"] == [1, 1] and found.workload["rows"] == 2
        assert any("2 rows of 4 left out: batch is not" in notice for notice in found.notices)
    words = ["import", "mine.csv", "--reference", "highest", "-o", "p.parquet", "--only"]
    assert main([*words, "batch=96"]) == 0
    capsys.readouterr()
    assert main([*words, "batch=7"]) == 2 and "no row has '7'; it has '24', '96'" in capsys.readouterr().err
    assert main([*words, "size=7"]) == 2 and "the table has no such column" in capsys.readouterr().err


def test_words_that_tell_settings_apart_may_be_workloads_and_are_told(tmp_path):
    """Each model at a clock of its own: no rows are pooled, but two models are compared."""
    text = "model,kernel,core_mhz,time_ms,energy_j\nbert,k,1935,2.0,0.5\ngpt2,k,1515,1.1,0.2\n"
    notices = import_table(written(tmp_path, text), reference="highest").notices
    told = "line 3, column model: 'gpt2' here but 'bert' before, both of k: if these are workloads"
    assert any(told in notice and "--only model=bert" in notice for notice in notices)
    notices = import_table(written(tmp_path, text.replace("gpt2", "bert")), reference="highest").notices
    assert not any("workloads" in notice for notice in notices)


@pytest.mark.parametrize(("times", "fits"), [((2.0, 2.9), True), ((2.0, 3.1), False), ((2.0, 2.0, 21.0), False)])
def test_equal_settings_that_differ_by_more_than_repeats_are_named(tmp_path, times, fits):
    text = "kernel,run,core_mhz,time_ms,energy_j,is_reference\nk,0,1935,2,0.4,1\n"
    text += "".join(f"k,{run},1515,{time},0.3,0\n" for run, time in enumerate(times))
    path = written(tmp_path, text)
    if fits:
        assert import_table(path).columns["n"] == [1, 2]
        return
    with pytest.raises(InputError, match=r"column time_ms: '\S+' here but '2.0' in line 3, both k at 1515 MHz"):
        import_table(path)


def test_rows_without_a_measurement_are_left_out_and_counted(tmp_path):
    text = of_heads("kernel,core_mhz,time_ms,energy_j") + "k,1200,[N/A],0.5\nk,1305,4,n/a\n"
    found = import_table(written(tmp_path, text), reference="highest")
    assert found.columns["core_mhz"] == [1935, 1515] and found.workload["rows_in_file"] == 4
    assert any("mine.csv, line 4: 2 rows of 4 left out: N/A" in notice for notice in found.notices)
    with pytest.raises(InputError, match="all are N/A"):
        import_table(written(tmp_path, "kernel,core_mhz,time_ms,energy_j\nk,,N/A,1\n"))


def test_a_header_in_the_middle_is_left_out_and_told(tmp_path):
    text = of_heads("kernel, core_mhz, time_ms, energy_j")
    text += "kernel,core_mhz,time_ms,energy_j\n,,,\nk,1305,3.9,0.6\n"
    found = import_table(written(tmp_path, text), reference="highest")
    assert found.columns["core_mhz"] == [1935, 1515, 1305]
    assert any("line 4: the header again, left out (once in the file)" in notice for notice in found.notices)


def test_utf16_is_read_and_a_compressed_file_is_named(tmp_path):
    path = written(tmp_path, of_heads("kernel;core_mhz;Time [ms];energy_j", ";"), encoding="utf-16")
    assert import_table(path, reference="highest").columns["core_mhz"] == [1935, 1515]
    path.write_bytes(b"\x1f\x8b\x08\x00rest")
    with pytest.raises(InputError, match=r"mine.csv: is compressed; unpack it first \(gunzip\)"):
        import_table(path)


def test_minus_one_is_a_clock_that_was_not_locked(tmp_path):
    found = import_table(written(tmp_path, of_heads("kernel,core_mhz,time_ms,energy_j").replace("1935", "-1")))
    assert found.columns["core_mhz"] == [None, 1515] and found.columns["is_baseline"] == [True, False]
    assert any("line 2: core_mhz is -1 in 1 row: taken as not locked" in notice for notice in found.notices)


@pytest.mark.parametrize(
    ("heads", "change", "line"),
    [
        ("time_ms,energy_j", 1e-3, "--units time_ms=us, or if energy_j is in kJ: --units energy_j=kj"),
        ("time_ms,energy_j", 1e3, "if time_ms is in s: --units time_ms=s, or if energy_j is in mJ"),
        ("time_ms,power_w", 333e3, "if power_w is in mW: --units power_w=mw"),
        ("time_ms,power_w", 0.333, "if power_w is in kW: --units power_w=kw"),
    ],
)
def test_a_power_that_no_board_draws_is_refused_with_the_unit_guessed(tmp_path, heads, change, line):
    text = f"kernel,core_mhz,{heads}\nk,,3.0,{0.69 * change!r}\n"
    with pytest.raises(InputError, match="which no GPU draws") as refused:
        import_table(written(tmp_path, text))
    assert line in str(refused.value)


def test_a_launch_of_weeks_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"column time_s: '3e\+06' is 3e\+06 s, no time of a launch"):
        import_table(written(tmp_path, "kernel,core_mhz,time_s,power_w\nk,,3e+06,230\n"))


def test_the_configuration_takes_what_the_command_takes():
    from kernel_dvfs.plan.study import import_options

    gpu = {"kind": "table", "path": "t.csv", "columns": {"core_mhz": "my clock"}, "only": {"batch": 24}}
    assert import_options(gpu) == "--columns 'core_mhz=my clock' --only batch=24"
