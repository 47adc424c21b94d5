"""Loads the fixtures of harness.py, but not in the process that only hands tests out (pytest -n): torch takes seconds."""


def pytest_configure(config):
    if not config.getoption("numprocesses", None):
        config.pluginmanager.import_plugin("harness")
