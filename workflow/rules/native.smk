# The native layer, a transformer's kernels behind pybind11: their C reference (cpu), the CUDA kernels (cuda), what reads
# captured CUDA graphs (graph), and the search of the pipeline study (pipeline). Where a tool is missing, the record says
# so and the rest goes on.
import sysconfig

from kernel_dvfs.native.build import source_files, watched
from kernel_dvfs.native.load import BACKENDS

# as seen from the working directory, so that moving the repository rebuilds nothing
NATIVE = os.path.relpath(LIBRARY.parent / "native")


def built(record):
    """What a job needs that loads a library, by the path of its record: of one that is built here, or of another."""
    return [record, ended(record)] if record.startswith("results/native/") else [record]


def native_mode(wildcards):
    """auto, on or off. A real GPU runs the CUDA kernels, or those of a captured step: what runs them is not optional."""
    needed = STUDY.is_real and loads.record(STUDY.is_step) == f"results/native/{wildcards.backend}/build.json"
    # what reads graphs is of use beside a GPU only, so it goes with the CUDA kernels
    backend = "cuda" if wildcards.backend == "graph" else wildcards.backend
    return "on" if needed else config["native"].get(backend, "auto")


rule native:
    input:
        [built(f"results/native/{backend}/build.json") for backend in BACKENDS],


# a job each: an error in one says nothing about the other
rule build:
    input:
        project=f"{NATIVE}/CMakeLists.txt",
        sources=lambda wildcards: source_files(NATIVE, wildcards.backend),
    output:
        touch(ended("results/native/{backend}/build.json")),
        # kept until there is a new one: the library beside it may still do, and after an error it is there as before
        update("results/native/{backend}/build.json"),
    log:
        # what compilers say is in results/native/{backend}.log
        "logs/native/{backend}.log",
    wildcard_constraints:
        backend="|".join(BACKENDS),
    # beside all else: nothing is to wait for a core (common.smk)
    threads: 0
    params:
        # a compiler installed later, or another Python, builds again
        tools=lambda wildcards: watched(wildcards.backend),
        python=sysconfig.get_config_var("SOABI"),
        native_dir=subpath(input.project, parent=True),
        mode=native_mode,
    shell:
        # its one line is for the user as well as for the log
        "{RUN_ALONE} build --native-dir {params.native_dir:q} --out results/native --{wildcards.backend} {params.mode} "
        "> {log:q} 2>&1 && cat {log:q} >&2"


if STUDY.is_of_rows:

    # what the study counts of its kernels is what the layer counts, which runs each of them once at small shapes
    rule native_rows:
        input:
            built("results/native/cpu/build.json"),
            # not asked, but built with the study
            built("results/native/cuda/build.json"),
            gpu=SETUP,
        output:
            STUDY.native_rows,
        log:
            "logs/" + FOLDER + "/native-rows.log",
        localrule: True
        threads: 0
        shell:
            "{RUN_ALONE} study native-rows --gpu {input.gpu:q} -o {output:q} > {log:q} 2>&1 && cat {log:q} >&2"


if STUDY.is_real:

    # A checkpoint, so that measurements are looked at again after a build and run only if it gave other bytes.
    checkpoint kernels:
        input:
            built(loads.record(STUDY.is_step)),
        output:
            KERNELS,
        log:
            "logs/kernels.log",
        # a look at a record: on a cluster no job of its own, which takes a Snakemake's start
        localrule: True
        params:
            of="--step" if STUDY.is_step else "",
        shell:
            "{RUN} measure kernels {params.of} --log {log:q} -o {output:q}"
