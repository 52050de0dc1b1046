"""Skips of tests that need what only `./test --all` installs."""

import importlib.util
import unittest


def needs(module):
    """Skips a test where that module is not installed."""
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # not even the package that it would be in
        found = None
    return unittest.skipIf(found is None, f"there is no Python module {module}; ./test --all installs it")
