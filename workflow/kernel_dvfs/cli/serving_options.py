"""Options that the serving commands share, and checks of them."""

from kernel_dvfs.errors import InputError


def whole_numbers(option: str, text: str) -> list:
    """`2,4,8` as numbers, each once, in order. Raises InputError."""
    words = text.split(",")
    if not all(word.isdecimal() and int(word) for word in words) or len(set(words)) < len(words):
        raise InputError(f"{option} {text}: expected different whole numbers of at least 1, separated by commas")
    return [int(word) for word in words]


def add_instance(parser) -> None:
    """What simulates an instance: GPU, model, engine, and how many requests of which draw."""
    parser.add_argument("--gpu", default="h100_sxm", help="a simulated GPU (default: h100_sxm)")
    parser.add_argument("--model", default="llama2-70b", help="a served model (default: llama2-70b)")
    parser.add_argument("--requests", type=int, default=800, metavar="N", help="simulated per load (default: 800)")
    parser.add_argument("--max-batch", type=int, default=256, metavar="N", help="sequences at once (default: 256)")
    parser.add_argument("--chunk-tokens", type=int, default=512, metavar="N", help="tokens of a step (default: 512)")
    parser.add_argument("--seed", type=int, default=1)


def instance_options(options) -> dict:
    """The numbers of add_instance as keywords of make_profile. Raises InputError."""
    for name in ("requests", "max_batch", "chunk_tokens"):
        least = 20 if name == "requests" else 1
        if getattr(options, name) < least:
            raise InputError(f"--{name.replace('_', '-')} {getattr(options, name)}: expected at least {least}")
    if options.chunk_tokens <= options.max_batch:
        raise InputError(
            f"--chunk-tokens {options.chunk_tokens}: a step must hold more tokens than the batch of {options.max_batch}"
        )
    return {name: getattr(options, name) for name in ("requests", "seed", "max_batch", "chunk_tokens")}
