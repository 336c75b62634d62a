"""`kernel-dvfs serving-anchors`: the simulated serving instance beside published measurements."""


def add_arguments(parser) -> None:
    parser.epilog = "example: kernel-dvfs serving-anchors results/serving"
    parser.add_argument("folder", metavar="FOLDER", help="gets tables/anchors and tables/anchors_summary")


def run(options) -> None:
    from kernel_dvfs.report.write import write_table
    from kernel_dvfs.serving.anchors import anchors
    from kernel_dvfs.serving.report.tables import anchors as table

    subject = "simulated H100 SXM and A100 SXM"
    frame = table.make(anchors())
    write_table(frame, options.folder, "anchors", table.CAPTION, subject, ("csv", "md"))
    write_table(table.summary(frame), options.folder, "anchors_summary", table.SUMMARY_CAPTION, subject, ("csv", "md"))
