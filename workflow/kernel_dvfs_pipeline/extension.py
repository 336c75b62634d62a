"""What this package adds to the road: a kind of study and its commands."""

from kernel_dvfs.extensions import Extension, Kind

EXTENSION = Extension(
    groups={"pipeline": ("clocks of pipeline-parallel training", "kernel_dvfs_pipeline.commands:COMMANDS")},
    kinds={
        "pipeline": Kind(
            report="kernel_dvfs_pipeline.report",
            reader=("kernel_dvfs_pipeline.study", "PipelineStudy"),
            title="Training pipelines",
            schema="kernel-dvfs/pipeline-study/",
            page="kernel_dvfs_pipeline.report.page",
            plan="kernel_dvfs_pipeline.study_plan:plan_pipeline",
            targets=("pipeline",),
        )
    },
    # runs keep and give back clocks as apply does
    needs=("deploy",),
)
