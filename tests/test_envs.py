"""The three lists of packages (pyproject.toml, the locks, the conda environment) say the same."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kernel_dvfs_clocks import package
from kernel_dvfs_clocks.package import remedy
from test_imports import imports_in

LOCKS = ("requirements.lock", "dev.lock", "cuda.lock", "docs.lock")
# conda splits packages: these are the parts that PyPI's packages are
CONDA_NAMES = {
    "snakemake-minimal": "snakemake",
    "libcublas-dev": "nvidia-cublas",
    "cudnn": "nvidia-cudnn-cu13",
    "python-cudnn-frontend": "nvidia-cudnn-frontend",
}
# what is imported by another name than the package's
PACKAGES = {"PIL": "pillow"}
# needed where pip needs none, or has none
CONDA_ONLY = {"python", "pip", "cxx-compiler"}


def locked(path) -> list[Requirement]:
    """The pins of a lock file; hashes, comments and line continuations left out."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Requirement(line.removesuffix("\\").strip()) for line in lines if re.match(r"[A-Za-z0-9]", line)]


def pin(lock, name, python):
    """The version that `lock` gives `name` on a Python, None if it gives none."""
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    for requirement in lock:
        applies = requirement.marker is None or requirement.marker.evaluate(environment)
        if canonicalize_name(requirement.name) == name and applies:
            (specifier,) = requirement.specifier
            return specifier.version
    return None


@pytest.fixture(scope="module")
def project(root):
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def direct(project) -> list[Requirement]:
    """What a study needs: the library's packages and the workflow's."""
    return [Requirement(text) for text in project["dependencies"]] + of_extra(project, "workflow")


def of_extra(project, name) -> list[Requirement]:
    """The packages of an extra, those of the extras of this project that it names among them."""
    found = []
    for requirement in map(Requirement, project["optional-dependencies"][name]):
        own = requirement.name == project["name"]
        found += [each for extra in sorted(requirement.extras) for each in of_extra(project, extra)] if own else []
        found += [] if own else [requirement]
    return list({each.name: each for each in found}.values())


def read_conda(path):
    """(an environment file, name as on PyPI -> pinned version or None)"""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    versions = {}
    for entry in content["dependencies"]:
        for text in entry["pip"] if isinstance(entry, dict) else [entry]:
            name, _, version = text.split("::")[-1].partition("=")
            versions[CONDA_NAMES.get(name, name)] = version.lstrip("=") or None
    return content, versions


@pytest.fixture(scope="module")
def conda(root):
    return read_conda(root / "envs/pipeline.yaml")


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_pins_every_package_by_version_and_hash_and_names_no_index(root, name):
    path = root / "envs" / name
    content = path.read_text(encoding="utf-8")
    assert not re.search(r"https?://|--(extra-)?index-url|--find-links", content)
    for requirement in locked(path):
        assert [specifier.operator for specifier in requirement.specifier] == ["=="], requirement
    blocks = re.split(r"^(?=[A-Za-z0-9])", content, flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in block for block in blocks)


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_the_lock_holds_every_direct_dependency_within_its_range(root, project, python):
    lock = locked(root / "envs/requirements.lock")
    for dependency in direct(project):
        version = pin(lock, canonicalize_name(dependency.name), python)
        assert version and dependency.specifier.contains(version), dependency


@pytest.mark.parametrize("extra", ["dev", "cuda"])
def test_an_extras_lock_holds_the_same_versions_and_the_extras_own_packages(root, project, extra):
    lock = {str(requirement) for requirement in locked(root / "envs/requirements.lock")}
    own = locked(root / f"envs/{extra}.lock")
    assert lock <= {str(requirement) for requirement in own}
    for dependency in map(Requirement, project["optional-dependencies"][extra]):
        version = pin(own, canonicalize_name(dependency.name), "3.12")
        assert version and dependency.specifier.contains(version), dependency


def test_the_lock_of_the_site_holds_its_packages_and_disagrees_with_no_other_lock(root, project):
    own = locked(root / "envs/docs.lock")
    for dependency in map(Requirement, project["optional-dependencies"]["docs"]):
        version = pin(own, canonicalize_name(dependency.name), "3.12")
        assert version and dependency.specifier.contains(version), dependency
    # both are installed into .venv
    versions = {each.name: str(each.specifier) for each in locked(root / "envs/dev.lock") if each.marker is None}
    for each in own:
        assert versions.get(each.name, str(each.specifier)) == str(each.specifier)


def test_cuda_is_locked_at_the_first_of_its_major_version_which_every_driver_for_it_takes(root, project):
    _, versions = read_conda(root / "envs/cuda.yaml")
    assert pin(locked(root / "envs/cuda.lock"), "nvidia-cublas", "3.12").startswith("13.0.")
    assert versions["cuda-version"] == "13.0"
    assert [str(Requirement(text).specifier) for text in project["optional-dependencies"]["cuda-toolkit"]] == [
        "==13.0.*"
    ]


def test_the_conda_additions_for_cuda_join_the_same_environment_at_the_locked_version(root, conda):
    content, versions = read_conda(root / "envs/cuda.yaml")
    assert content["name"] == conda[0]["name"]
    assert set(content["channels"]) <= set(conda[0]["channels"])
    lock = locked(root / "envs/cuda.lock")
    for name in ("nvidia-cublas", "nvidia-cudnn-cu13", "nvidia-cudnn-frontend"):
        assert versions[name] == pin(lock, name, "3.12"), name


def test_the_conda_environment_has_the_direct_dependencies_at_the_locked_versions(root, project, conda):
    content, versions = conda
    lock = locked(root / "envs/requirements.lock")
    names = {canonicalize_name(dependency.name) for dependency in direct(project)}
    assert set(versions) - CONDA_ONLY == names
    for name in sorted(names):
        assert versions[name] == pin(lock, name, versions["python"]), name
    assert Requirement(f"python{project['requires-python']}").specifier.contains(versions["python"])
    assert content["name"] == project["name"]


def test_the_conda_environment_names_no_path(root, conda):
    (from_pip,) = (entry["pip"] for entry in conda[0]["dependencies"] if isinstance(entry, dict))
    assert not [text for text in from_pip if text.startswith((".", "/", "-"))]
    # so the project itself, with its plugins of Snakemake, is installed by a command of its own
    assert "pip install --no-deps -e ." in (root / "envs/pipeline.yaml").read_text("utf-8")


@pytest.mark.slow
def test_of_each_package_of_an_extra_that_the_code_imports_a_message_names_one_that_brings_it(root, project):
    trees = (ast.parse(path.read_text("utf-8")) for path in root.glob("workflow/kernel_dvfs*/**/*.py"))
    nodes = [node for tree in trees for node in imports_in(tree)]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    of = {extra: {canonicalize_name(each.name) for each in of_extra(project, extra)} for extra in ("workflow", "torch")}
    checked = set()
    for module in {name.partition(".")[0] for name in names}:
        package = PACKAGES.get(module, canonicalize_name(module))
        if package in of["workflow"] | of["torch"]:
            (extra,) = re.findall(r"kernel-dvfs\[(\w+)\]", remedy(ModuleNotFoundError(name=module)))
            assert package in {canonicalize_name(each.name) for each in of_extra(project, extra)}, module
            checked.add(package)
    assert checked >= {"numpy", "mpmath", "pandas", "pillow", "scipy", "simpy", "torch"}


@pytest.mark.parametrize(
    ("extra", "known"), [("tables", {"pyarrow"}), ("workflow", {"pyarrow", "ortools", "snakemake"})]
)
def test_what_a_study_looks_for_is_what_its_extra_brings(project, monkeypatch, extra, known):
    assert not package.lacking("tables"), "these tests have them"
    monkeypatch.setattr(package, "find_spec", lambda name: None)
    monkeypatch.setattr(package.shutil, "which", lambda name: None)
    modules = package.lacking(extra).partition(" lacks ")[2].partition(": ")[0].split(", ")
    named = {canonicalize_name(PACKAGES.get(name, name)) for name in modules}
    brought = {canonicalize_name(each.name) for each in of_extra(project, extra)}
    assert known <= named <= brought and len(named) >= len(brought) - 4, "all but plugins and what nothing imports"


def test_what_is_installed_includes_the_plugins_of_snakemake(root):
    find = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["packages"]["find"]
    packages = {path.parent.name for path in (root / find["where"][0]).glob("snakemake_*/__init__.py")}
    assert packages == {f"snakemake_{kind}_plugin_kernel_dvfs" for kind in ("logger", "scheduler")}
    assert all(any(fnmatch(package, pattern) for pattern in find["include"]) for package in packages)


def test_the_conda_environment_brings_a_compiler_and_open_channels_only(conda):
    content, versions = conda
    assert "cxx-compiler" in versions
    assert content["channels"][:2] == ["conda-forge", "bioconda"]
    assert "defaults" not in content["channels"]


def test_the_container_is_made_from_the_lock_and_from_files_that_are_there(root, project):
    text = (root / "Dockerfile").read_text("utf-8")
    (python,) = re.findall(r"^FROM python:(\d+\.\d+)-slim$", text, re.MULTILINE)
    assert Requirement(f"python{project['requires-python']}").specifier.contains(python)
    copied = [words.split()[:-1] for words in re.findall(r"^COPY (.*)$", text, re.MULTILINE)]
    assert copied == [["envs/requirements.lock"], ["."]]
    assert all((root / name).exists() for names in copied for name in names)
    assert "--require-hashes -r envs/requirements.lock" in text and "--no-deps ." in text
    ignored = (root / ".dockerignore").read_text("utf-8").split()
    # what git ignores is no part of the image, and nothing that the project needs is left out
    assert {".git", ".venv", "results", ".snakemake"} <= set(ignored)
    assert not set(ignored) & {"workflow", "native", "envs", "profiles", "config.yaml", "Snakefile"}


def test_the_broker_s_lock_is_one_line_of_the_lock_that_users_have_and_all_that_it_imports(root):
    (line,) = (root / "envs/broker.lock").read_text().splitlines()
    whole = " ".join((root / "envs/requirements.lock").read_text().replace("\\\n", " ").split())
    assert line in whole and line.count("--hash=sha256:") == 2
    code = "import sys, kernel_dvfs.cli.main, kernel_dvfs.cli.broker, kernel_dvfs.cli.reset\n"
    code += "import kernel_dvfs_clocks.broker, pynvml\n"
    code += "print(*(m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=os.environ | {"PYTHONPATH": str(root / "workflow")},
        capture_output=True,
        text=True,
    )
    foreign = {each for each in done.stdout.split() if "site-packages" in each}
    names = {each.rpartition("site-packages/")[2].partition("/")[0] for each in foreign}
    # what a Python starts with by itself, by .pth files, is none of ours
    assert "pynvml.py" in names and not names & {"numpy", "pandas", "yaml", "jsonschema", "snakemake", "pyarrow"}, names


def test_what_ci_runs_of_others_is_named_by_its_commit(root):
    files = [*(root / ".github/workflows").glob("*.yml")]
    used = [each for file in files for each in re.findall(r"uses: (\S+)", file.read_text())]
    assert len(files) > 1 and used and all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", each) for each in used), used
