"""A real HTTP server that speaks like an OpenAI endpoint and fails in the ways that it is told to."""

import json
import threading
from collections import Counter, deque
from contextlib import contextmanager, suppress
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


class Endpoint(ThreadingHTTPServer):
    """What the server does with the next requests, and what it saw."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.faults, self.down = deque(), "ok"
        """What happens to the next requests, in their order; to every other one. `ok`: an answer."""
        self.answered = Counter()
        """(model, last message) -> answers that were sent whole."""
        self.seen = []
        """(authorization, body) of every request."""
        self.at_once = self.most_at_once = 0
        self.says = None
        """What every answer says; None: what it would do, from the last message."""
        self.lock, self.closing = threading.Lock(), threading.Event()

    def handle_error(self, *_):
        """A client that leaves in the middle is what is tested: no traceback of it."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send(self, status, body, **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": len(data), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self):
        e = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with e.lock:
            e.seen.append((self.headers["Authorization"], body))
            e.at_once += 1
            e.most_at_once = max(e.most_at_once, e.at_once)
            fault = e.faults.popleft() if e.faults else e.down
        with suppress(BrokenPipeError, ConnectionResetError):
            self.answer(fault, body)
        with e.lock:
            e.at_once -= 1

    def answer(self, fault, body):
        e, asked = self.server, body["messages"][-1]["content"]
        told = completion(body["model"], e.says or f"I would {asked}")
        if fault in ("ok", "no usage"):
            with e.lock:
                e.answered[body["model"], asked] += 1
            self.send(200, told if fault == "ok" else {**told, "usage": None})
        elif fault == "413 echo":  # what it was sent, the key included, cut wherever 200 characters end
            self.send(413, {"error": {"message": "x" * 160 + self.headers["Authorization"]}})
        elif fault == "hang":
            e.closing.wait(HANG)
            self.close_connection = True
        elif fault.isdigit():
            self.send(int(fault), {"error": {"message": "no"}}, **{"Retry-After": "0.3"} if fault == "429" else {})
        else:
            self.send(200, fault.encode())


@contextmanager
def serving():
    """(endpoint, url) of a server in a thread of this process."""
    endpoint = Endpoint()
    thread = threading.Thread(target=endpoint.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield endpoint, f"http://127.0.0.1:{endpoint.server_port}/v1"
    finally:
        endpoint.closing.set()
        endpoint.shutdown()
        endpoint.server_close()
        thread.join()
