"""`kernel-dvfs kernels`: write down which kernels a real GPU runs, for measurements to depend on."""

from kernel_dvfs.files import write_text


def add_arguments(parser) -> None:
    parser.epilog = "example: kernel-dvfs kernels -o results/native/kernels.sha256"
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="where the library's checksum goes")


def run(options) -> None:
    from kernel_dvfs.measurement.real.loads import library_sha256

    write_text(options.output, library_sha256() + "\n")
