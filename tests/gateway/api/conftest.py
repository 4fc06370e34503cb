"""A gateway fixture for the API tests."""

import pytest

from tests.support.api_gateway import serve_api


@pytest.fixture
def at():
    with serve_api() as here:
        yield here
