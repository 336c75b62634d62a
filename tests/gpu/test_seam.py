"""The same statements hold for a simulated GPU and for a real one on the fake NVML: nothing above the seam can tell."""

import json
from pathlib import Path

import pytest
import seam_statements
from laboratory import Lab

NAMES = [statement.__name__ for statement in seam_statements.STATEMENTS]


@pytest.fixture(scope="module")
def simulated():
    return seam_statements.of_simulated()


@pytest.fixture(scope="module")
def real(fake_library, tmp_path_factory):
    """Skips where there is no C compiler for the fake NVML."""
    import fake

    folder = tmp_path_factory.mktemp("seam")
    boards = fake.Boards(fake_library, folder / "boards.state", "h200", time="virtual")
    lab = Lab(boards, folder / "work", {})
    code = Path(seam_statements.__file__).read_text()
    done = lab.python(f"import sys\nsys.argv[1:] = [{boards.uuid!r}]\n{code}")
    assert done.returncode == 0, done.stderr
    assert boards.locks == ("none", "none") and not lab.lease.exists(), "the guard has restored the clocks"
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["simulated", "real"])
def test_of_every_gpu(kind, name, request):
    wrong = request.getfixturevalue(kind)[name]
    assert not wrong, wrong


def test_every_statement_is_made():
    statements = [name for name, value in vars(seam_statements).items() if getattr(value, "__code__", None)]
    made = [name for name in statements if seam_statements.__dict__[name].__code__.co_varnames[:2] == ("gpu", "setup")]
    assert set(made) - {"verdicts"} == set(NAMES)
