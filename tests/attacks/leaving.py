"""Ways out of the sandbox: mounts, namespaces, set-user-id programs, connections."""

from textwrap import dedent

from attacks.forms import OLD_CALL, probe

probe(
    "leave_by_chroot_and_mounts",
    """
    import ctypes, os
    libc = ctypes.CDLL(None, use_errno=True)
    os.mkdir("jail")
    won = 0
    for step in (lambda: os.chroot("jail"), lambda: libc.mount(b"none", b"jail", b"tmpfs", 0, None) and 1 / 0,
                 lambda: libc.mount(b"@DIR@", b"jail", b"none", 4096, None) and 1 / 0,
                 lambda: libc.umount2(b"/proc", 2) and 1 / 0, lambda: libc.pivot_root(b".", b".") and 1 / 0,
                 lambda: libc.setuid(0) and 1 / 0 if os.getuid() else 1 / 0):
        try:
            step()
            won += 1
        except (OSError, ZeroDivisionError, AttributeError):
            pass
    return won
    """,
    control="scratch_files",
    needs="root",
)
probe(
    "new_namespaces",
    """
    import ctypes, os
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x10000000 | 0x00020000):  # CLONE_NEWUSER, CLONE_NEWNS
        return False
    for path, text in (("setgroups", "deny"), ("uid_map", f"0 {os.getuid()} 1"), ("gid_map", f"0 {os.getgid()} 1")):
        try:
            with open("/proc/self/" + path, "w") as out:
                out.write(text)
        except OSError:
            pass
    os.mkdir("jail2")
    return libc.mount(b"none", b"jail2", b"tmpfs", 0, None) == 0
    """,
    needs="kernel",
)
probe(
    "set_user_id_program",
    """
    import subprocess
    got = subprocess.run(["@SUID@", "-u"], capture_output=True).stdout.strip()
    import os
    return got == b"0" and os.getuid() != 0
    """,
    control="fork",
    needs="root",
)

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
