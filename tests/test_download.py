"""The benchmark's problems come whole or not at all, and go on where they were cut. From a server of this machine."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from harness import refused

from projected_grpo.worlds import benchmark

ROWS = {"train.jsonl": b'{"id": 1}\n' * 9000, "test.jsonl": b'{"id": 2}\n' * 10}
BLOBS = {
    "train.jsonl": "2f6fcd80def427d4013099b53569ba379a7ae923",
    "test.jsonl": "b29b7bc1cfc7cc2d4fa13db5d4105960942b0231",
}
"""By `git hash-object`."""


@pytest.fixture
def server():
    """Serves ROWS, with ranges; `asked` says from which byte."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            name = self.path.rpartition("/")[2]
            first = int(self.headers.get("Range", "bytes=0-")[6:-1])
            asked.append((name, first))
            if name not in ROWS:
                return self.send_error(404)
            body = ROWS[name][first:]
            self.send_response(206 if first and body else 416 if first else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            return self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_port}/data", asked
        found.shutdown()


@pytest.fixture(autouse=True)
def two_files(monkeypatch):
    monkeypatch.setattr(benchmark, "LEETCODE", {"leetcode": ("train.jsonl", BLOBS["train.jsonl"]),
                                                "leetcode-held-out": ("test.jsonl", BLOBS["test.jsonl"])})  # fmt: skip


def test_what_was_cut_goes_on_and_what_is_whole_is_left(done, server, tmp_path):
    source, asked = server
    (tmp_path / "p").mkdir()
    (tmp_path / "p/train.jsonl.part").write_bytes(ROWS["train.jsonl"][:50_000])
    done("download_problems", "--source", source, "--out", "p")
    assert asked == [("train.jsonl", 50_000), ("test.jsonl", 0)]
    assert {name: (tmp_path / "p" / name).read_bytes() for name in ROWS} == ROWS
    done("download_problems", "--source", source, "--out", "p")
    assert len(asked) == 2


def test_another_file_or_no_way_to_it_is_one_line_and_nothing_half_made(script, server, tmp_path, monkeypatch):
    source, _ = server
    monkeypatch.setitem(ROWS, "test.jsonl", b"something else")
    refused(script("download_problems", "--source", source, "--out", "p"), "is git blob", BLOBS["test.jsonl"])
    assert sorted(path.name for path in (tmp_path / "p").iterdir()) == ["train.jsonl"]
    refused(
        script("download_problems", "--source", "http://127.0.0.1:1/x", "--out", "q"),
        "cannot be fetched",
        "call it again",
    )
    refused(script("download_problems", "--source", f"{source}/no", "--out", "p"), "is git blob")


def test_a_preset_that_was_not_given_them_says_what_fetches_them(script):
    found = script("train", "full", "--problems", "leetcode")
    refused(found, "--problems leetcode", "is not here; fetch it with `just download-model`")
