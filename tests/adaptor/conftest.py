"""The shared suite explains its failures as test modules do."""

import pytest

pytest.register_assert_rewrite("tests.adaptor.contract")
