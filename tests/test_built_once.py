"""What is made once and kept: whole, as it was made, by one process at a time."""

import subprocess
import sys
import textwrap

import pytest

from projected_grpo.ledger.built_once import SUMS, built_once
from projected_grpo.ledger.errors import BadInput
from projected_grpo.model.load import load_folder


def write(folder):
    (folder / "sub").mkdir()
    (folder / "weights").write_bytes(b"12345678")
    (folder / "sub" / "config").write_text("{}")


def forbidden(_folder):
    pytest.fail("built a second time")


def truncate(folder):
    (folder / "weights").write_bytes(b"1234")


def overwrite(folder):
    (folder / "weights").write_bytes(b"12345679")


def take_out(folder):
    (folder / "sub" / "config").unlink()


def put_in(folder):
    (folder / "more").write_text("")


def empty(folder):
    (folder / SUMS).unlink()


def test_what_is_there_as_it_was_made_is_taken(tmp_path):
    assert built_once(tmp_path / "a", write) == built_once(tmp_path / "a", forbidden) == tmp_path / "a"


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (truncate, "a/weights: not the file that was made here"),
        (overwrite, "a/weights: not the file that was made here"),
        (take_out, "a/sub/config: not the file"),
        (put_in, "a/more: not the file"),
        (empty, "a: has no sha256.json"),
    ],
)
def test_what_is_not_as_it_was_made_is_refused(tmp_path, spoil, told):
    spoil(built_once(tmp_path / "a", write))
    with pytest.raises(BadInput, match=told + ".*remove"):
        built_once(tmp_path / "a", forbidden)


def test_a_build_that_fails_leaves_nothing_and_one_that_was_killed_is_swept(tmp_path):
    left = tmp_path / ".a.0123.tmp"
    left.mkdir()

    def full(_folder):
        raise OSError("no space left on device")

    with pytest.raises(BadInput, match=r"cannot write .no space left"):
        built_once(tmp_path / "a", full)
    assert [p.name for p in tmp_path.iterdir()] == [".a.lock"]


def test_several_at_once_build_once_and_the_others_say_that_they_wait(tmp_path):
    code = textwrap.dedent("""
        import sys, time
        from pathlib import Path
        from projected_grpo.ledger.built_once import built_once
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
    assert sum("another process builds a; waiting" in err for _, err in told) == 2


def test_a_truncated_model_is_one_line(tmp_path, built):
    """safetensors raises an error of its own."""
    weights = tmp_path / "model.safetensors"
    for path in built.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    with pytest.raises(BadInput, match=r"cannot be read .SafetensorError"):
        load_folder(str(tmp_path), tmp_path, "float32", "cpu")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    from projected_grpo.run.tiny_model import built_model

    return built_model("tiny", 0, tmp_path_factory.mktemp("cache"))
