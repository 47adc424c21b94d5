"""Ways out of the sandbox: mounts, namespaces, set-user-id programs, devices."""

from attacks.forms import probe

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
