"""`just lock` writes new pins or leaves the old ones."""

import subprocess
import sys

import lock
import pytest

BEFORE = '[project]\nname = "x"\n\n[tool.uv]\nconstraint-dependencies = [\n  "torch==2.11.0",\n]\npackage = true\n'


@pytest.fixture
def project(tmp_path, monkeypatch):
    path = tmp_path / "pyproject.toml"
    path.write_text(BEFORE)
    monkeypatch.setattr(lock, "PYPROJECT", path)
    monkeypatch.setattr(sys, "argv", ["lock.py"])
    return path


def test_new_pins_take_the_place_of_the_old_ones(project, monkeypatch, capsys):
    seen = []

    def uv(*words):
        seen.append((words[0], "torch" in project.read_text()))
        return 'torch==2.15.0\ntriton==3.9.0 ; sys_platform == "linux"\n'

    monkeypatch.setattr(lock, "uv", uv)
    lock.main()
    assert seen == [("lock", False), ("export", False)]  # the old ones do not bind
    pins = '  "torch==2.15.0",\n  "triton==3.9.0 ; sys_platform == \'linux\'",\n'
    assert project.read_text() == BEFORE.replace('  "torch==2.11.0",\n', pins)
    assert capsys.readouterr().out.splitlines() == ["2 versions pinned in pyproject.toml"]


@pytest.mark.parametrize("error", [subprocess.CalledProcessError(2, ["uv", "lock"]), FileNotFoundError("uv")])
def test_a_lock_that_fails_leaves_the_pins(project, monkeypatch, capsys, error):
    def uv(*_):
        raise error

    monkeypatch.setattr(lock, "uv", uv)
    with pytest.raises(SystemExit) as stopped:
        lock.main()
    assert stopped.value.code == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert project.read_text() == BEFORE
