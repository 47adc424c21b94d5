"""Loads the fixtures of harness.py, but not in the process that only hands tests out (pytest -n): torch takes
seconds."""


def pytest_configure(config):
    if not config.getoption("numprocesses", None):
        config.pluginmanager.import_plugin("harness")


def pytest_collection_modifyitems(items):
    """The small world's tests come first: so they stay on one worker, and its problems are drawn once."""
    items.sort(key=lambda item: item.path.stem != "test_small")
