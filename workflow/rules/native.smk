# The native layer: C reference of the kernels. Without a compiler the record says so and the rest goes on.
import os
import sysconfig

from kernel_dvfs.native.build import source_files
from kernel_dvfs.native.toolchain import cxx_path

# as seen from the working directory, so that moving the repository rebuilds nothing
NATIVE = os.path.relpath(os.path.join(workflow.basedir, "native"))


rule native:
    input:
        project=f"{NATIVE}/CMakeLists.txt",
        sources=source_files(NATIVE),
    output:
        "results/native/cpu/build.json",
    log:
        # written by the command itself: its one line for the user stays on the terminal
        "results/native/cpu.log",
    conda:
        "../../envs/pipeline.yaml"
    params:
        # a compiler installed later, or another Python, builds again
        compiler=cxx_path(),
        python=sysconfig.get_config_var("SOABI"),
        native_dir=subpath(input.project, parent=True),
        cpu=config["native"]["cpu"],
        cuda=config["native"]["cuda"],
    shell:
        "python -m kernel_dvfs build --native-dir {params.native_dir:q} --out results/native"
        " --cpu {params.cpu} --cuda {params.cuda}"
