"""`kernel-dvfs serving-study`: a folder for a study of serving systems, its trace checked."""


def add_arguments(parser) -> None:
    parser.epilog = "example: kernel-dvfs serving-study results/serving/mine --options '{...}'"
    parser.add_argument("folder", metavar="FOLDER", help="gets study.json")
    parser.add_argument("--options", required=True, metavar="JSON", help="as the workflow gives them")


def run(options) -> None:
    from kernel_dvfs.errors import InputError
    from kernel_dvfs.files import parse_json
    from kernel_dvfs.serving.study import make_study

    try:
        asked = parse_json(options.options)
    except ValueError as error:
        raise InputError(f"--options: {error}") from None
    make_study(options.folder, asked)
