"""A folder of the cache is built once, by one process at a time, and is whole."""

import subprocess
import sys
import textwrap

import pytest

from projected_grpo.ledger.errors import BadInput
from projected_grpo.ledger.files import built_once


def write(folder):
    (folder / "sub").mkdir()
    (folder / "weights").write_bytes(b"12345678")
    (folder / "sub" / "config").write_text("{}")


def test_a_build_that_fails_leaves_nothing_and_one_that_was_killed_is_swept(tmp_path):
    left = tmp_path / ".a.tmp"
    left.mkdir()

    def full(_folder):
        raise OSError("no space left on device")

    with pytest.raises(BadInput, match=r"cannot write .no space left"):
        built_once(tmp_path / "a", full)
    assert [p.name for p in tmp_path.iterdir()] == [".a.lock"]


@pytest.mark.slow
def test_several_at_once_build_once_and_the_others_wait(tmp_path):
    code = textwrap.dedent("""
        import sys, time
        from pathlib import Path
        from projected_grpo.ledger.files import built_once
        def build(folder):
            print("built", flush=True)
            time.sleep(1)
            (folder / "x").write_text("x")
        built_once(Path(sys.argv[1]), build, "about to build")
    """)
    argv = [sys.executable, "-c", code, str(tmp_path / "a")]
    several = [subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    told = [p.communicate() for p in several]
    assert [p.returncode for p in several] == [0, 0, 0], told
    assert sum("built" in out for out, _ in told) == 1
    assert sum("about to build" in err for _, err in told) == 1
