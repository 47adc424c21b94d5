"""Connections to what listens outside, and from what does."""

from textwrap import dedent

from attacks.forms import OLD_CALL, probe

_CONNECT = """
import socket
def reach(family, kind, address):
    try:
        with socket.socket(family, kind) as one:
            one.settimeout(1)
            one.connect(address)
            one.sendall(b"@MARK@")
            return True
    except OSError:
        return False
"""
for _name, _body in (
    ("connect_by_tcp", "return reach(socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', @PORT@))\n"),
    ("send_by_udp", "reach(socket.AF_INET, socket.SOCK_DGRAM, ('127.0.0.1', @UDP@))\nreturn False\n"),
    ("connect_by_unix_path", "return reach(socket.AF_UNIX, socket.SOCK_STREAM, '@SOCKET@')\n"),
    ("connect_by_abstract_name", "return reach(socket.AF_UNIX, socket.SOCK_STREAM, chr(0) + '@ABSTRACT@')\n"),
):
    probe(_name, _CONNECT + _body, needs="network", control="asyncio")
probe(
    "connect_by_the_32_bit_entry",
    OLD_CALL
    + dedent("""
    import socket, struct
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    page = libc.mmap(None, ctypes.c_size_t(4096), 3, 0x62, -1, ctypes.c_long(0))
    address = struct.pack("<H", 2) + struct.pack(">H", @PORT@) + socket.inet_aton("127.0.0.1") + bytes(8)
    ctypes.memmove(page, address, 16)
    fd = old_call(359, 2, 1, 0)
    return fd >= 0 and old_call(362, fd, page, 16) == 0
    """),
    needs="network",
    control="asyncio",
)
