"""`kernel-dvfs serving-replay`: one trace through one system."""

from kernel_dvfs.errors import InputError


def add_arguments(parser) -> None:
    parser.epilog = (
        "example: kernel-dvfs serving-replay conv.csv --profile profile.csv --system DynamoLLM --servers 8 -o out.json"
    )
    parser.add_argument("trace", metavar="TRACE.csv", help="TIMESTAMP, ContextTokens, GeneratedTokens")
    parser.add_argument("--profile", required=True, metavar="PROFILE.csv", help="see kernel-dvfs serving-profile")
    parser.add_argument("--system", default="DynamoLLM", metavar="NAME", help="(default: DynamoLLM)")
    parser.add_argument("--gpu", default="h100_sxm", help="a simulated GPU (default: h100_sxm)")
    parser.add_argument("--model", default="llama2-70b", help="a served model (default: llama2-70b)")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings, as in config.yaml")
    parser.add_argument("--servers", type=int, default=8, metavar="N", help="of 8 GPUs (default: 8)")
    parser.add_argument("--pools", type=int, default=4, metavar="N", help="of pooled systems (default: 4)")
    parser.add_argument("-o", "--output", required=True, metavar="OUT.json")


def run(options) -> None:
    import sys

    from kernel_dvfs.files import write_json
    from kernel_dvfs.serving.machine import Machine
    from kernel_dvfs.serving.outcome import lines, outcome
    from kernel_dvfs.serving.profile import read_profile
    from kernel_dvfs.serving.replay_cluster import Bench
    from kernel_dvfs.serving.system import SYSTEMS
    from kernel_dvfs.serving.trace import read_trace

    if options.system not in SYSTEMS:
        raise InputError(f"--system {options.system}: allowed: {', '.join(SYSTEMS)}")
    own = _settings(options)
    trace = read_trace(options.trace)
    bench = Bench(Machine(options.gpu, options.model), read_profile(options.profile))
    found = outcome(bench.run(trace, options.system, own), timeline=True)
    write_json(options.output, {"trace": trace.subject, "settings": own._asdict()} | found)
    for line in lines(found):
        print(f"note: {line}", file=sys.stderr)


def _settings(options):
    import yaml

    from kernel_dvfs.serving.settings import DEFAULTS, settings

    changed = {"servers": options.servers, "pools": options.pools}
    for each in options.set:
        key, _, text = each.partition("=")
        if key not in DEFAULTS:
            raise InputError(f"--set {each}: no setting '{key}'; allowed: {', '.join(DEFAULTS)}")
        value, usual = yaml.safe_load(text), DEFAULTS[key]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (isinstance(value, type(usual)) or (number and isinstance(usual, float)) or key == "misprediction"):
            raise InputError(f"--set {each}: expected a value such as {usual}")
        if number and value < 0:
            raise InputError(f"--set {each}: expected a value >= 0")
        changed[key] = value
    if changed["servers"] < 1:
        raise InputError(f"--servers {changed['servers']}: expected at least 1")
    return settings(**changed)
