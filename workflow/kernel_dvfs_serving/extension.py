"""What this package adds to the road: a kind of study and its commands."""

from kernel_dvfs.extensions import Extension, Kind

EXTENSION = Extension(
    groups={"serving": ("energy of inference serving", "kernel_dvfs_serving.commands:COMMANDS")},
    kinds={
        "serving": Kind(
            report="kernel_dvfs_serving.report",
            reader=("kernel_dvfs_serving.study", "ServingStudy"),
            title="Inference serving",
            schema="kernel-dvfs/serving/",
            page="kernel_dvfs_serving.report.page",
            sign="experiments",  # what is said of one instance has no study.json
            plan="kernel_dvfs_serving.study_plan:plan_serving",
            targets=("serving", "serving_paper"),
        )
    },
)
