# The whole project in a container: the workflow on a simulated GPU or a table, and every command but `capture`, which
# needs PyTorch.
#
#   docker build -t kernel-dvfs .
#   docker run --rm -v "$PWD/results:/project/results" kernel-dvfs snakemake --cores 2 all
#   docker run --rm kernel-dvfs kernel-dvfs demo
#
# For a real GPU add `--gpus all` and the folder of leases, `-v /run/lock:/run/lock`. Without that folder other runs
# cannot see that this GPU's clocks are taken (docs/real-gpus.md). To set clocks the container needs the right to do so,
# `--cap-add SYS_ADMIN`; without it, measure with clocks=auto-only.
FROM python:3.12-slim

# Compilers for the C reference and the search for pipelines. Debian keeps one version of each, so none is named.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends build-essential \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /project
COPY envs/requirements.lock envs/requirements.lock
RUN pip install --no-cache-dir --require-hashes -r envs/requirements.lock
COPY . .
RUN pip install --no-cache-dir --no-deps .

CMD ["kernel-dvfs", "--help"]
