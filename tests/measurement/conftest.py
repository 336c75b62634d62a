"""What the tests of measurements share."""

import pytest


@pytest.fixture(scope="session")
def setup(setup_of):
    """The default study on a simulated GPU, of three windows a point; tests read it only."""
    return setup_of(windows=3)
