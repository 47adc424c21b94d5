"""A real HTTP server that speaks like an OpenAI endpoint and fails in the ways that it is told to."""

import json
import threading
import time
from collections import Counter, deque
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PROMPT, COMPLETION = 7, 3
"""Tokens of every answer."""
HANG = 3.0
"""Seconds that a hanging request is kept."""


def completion(model, text, prompt=PROMPT, spoken=COMPLETION):
    """The body of a chat completion."""
    return {
        "id": "x", "object": "chat.completion", "created": 0, "model": model,
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": spoken, "total_tokens": prompt + spoken},
    }  # fmt: skip


class Endpoint:
    """What the server does with the next requests, and what it saw."""

    def __init__(self):
        self.faults = deque()
        """Names of what happens to the next requests, in their order; `ok` or none left: an answer."""
        self.down = None
        """A fault of every request, when the list is empty."""
        self.answered = Counter()
        """(model, last message) -> answers that were sent whole."""
        self.seen = []
        """(seconds, authorization, body) of every request."""
        self.at_once = self.most_at_once = 0
        self.says = None
        """What every answer says; None: what it would do, from the last message."""
        self.lock = threading.Lock()
        self.closing = threading.Event()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    endpoint: Endpoint

    def log_message(self, *_):
        pass

    def send(self, status, data, **headers):
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": len(data), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self):
        e = self.endpoint
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with e.lock:
            e.seen.append((time.monotonic(), self.headers["Authorization"], body))
            e.at_once += 1
            e.most_at_once = max(e.most_at_once, e.at_once)
            fault = e.faults.popleft() if e.faults else e.down or "ok"
        try:
            self.answer(fault, body)
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            with e.lock:
                e.at_once -= 1

    def answer(self, fault, body):
        e, asked = self.endpoint, body["messages"][-1]["content"]
        told = completion(body["model"], e.says or f"I would {asked}")
        error = json.dumps({"error": {"message": "no"}}).encode()
        if fault in ("ok", "no usage"):
            with e.lock:
                e.answered[body["model"], asked] += 1
            self.send(200, json.dumps(told if fault == "ok" else {**told, "usage": None}).encode())
        elif fault == "429":
            self.send(429, error, **{"Retry-After": "0.3"})
        elif fault in ("400", "401", "500"):
            self.send(int(fault), error)
        elif fault == "413 echo":  # what it was sent, the key included, cut wherever 200 characters end
            padding = "x" * 160
            self.send(413, json.dumps({"error": {"message": padding + self.headers["Authorization"]}}).encode())
        elif fault == "hang":
            e.closing.wait(HANG)
            self.close_connection = True
        else:
            self.send(200, fault.encode())


class QuietServer(ThreadingHTTPServer):
    """A client that leaves in the middle is what is tested: no traceback of it."""

    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_):
        pass


@contextmanager
def serving():
    """(endpoint, url) of a server in a thread of this process."""
    endpoint = Endpoint()
    server = QuietServer(("127.0.0.1", 0), type("Told", (Handler,), {"endpoint": endpoint}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield endpoint, f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        endpoint.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
