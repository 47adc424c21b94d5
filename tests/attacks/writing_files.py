"""Files written, damaged or removed outside the scratch directory, and that directory abused."""

from functools import partial

from attacks import forms
from attacks.forms import in_wrong, with_wrong

probe = partial(forms.probe, control="scratch_files", needs="write")


_WRITES = """
import os
won = False
for folder in ("@DIR@", "@CWD@", "@HOME@", "/tmp", "/var/tmp", "/dev/shm", "..", "/", "/run", "/etc", "/proc/self/cwd/.."):
    try:
        with open(os.path.join(folder, "@MARK@"), "w") as out:
            out.write("x")
        won = True
    except OSError:
        pass
return won
"""
probe("write_outside", _WRITES)
probe(
    "make_folders_links_and_pipes_outside",
    """
    import os, socket
    won = 0
    for folder in ("@DIR@", "@CWD@", "@HOME@", "/tmp", "/dev/shm", "/var/tmp"):
        for make in (os.mkdir, lambda p: os.symlink("/etc/passwd", p), os.mkfifo, lambda p: os.mknod(p),
                     lambda p: os.link("@DIR@/keep.txt", p), lambda p: socket.socket(socket.AF_UNIX).bind(p)):
            try:
                make(os.path.join(folder, "@MARK@"))
                won += 1
            except OSError:
                pass
    return won
    """,
)
_DAMAGE = {
    "chmod": "os.chmod(path, 0)",
    "mark": "os.setxattr(path, 'user.mark', b'x')",
    "lock_up": "os.chmod(where, 0)",
    "remove": "os.unlink(path)",
    "overwrite": "open(path, 'w').write('x')",
    "exchange": "open('mine', 'w').write('x'); os.replace('mine', path)",
}
for _name, _call in _DAMAGE.items():
    probe(
        f"{_name}_a_file_outside",
        "import os\nwon = 0\nfor where in ('@DIR@', '@CWD@', '@HOME@'):\n    path = where + '/keep.txt'\n"
        f"    try:\n        {_call}\n"
        "        won += 1\n    except OSError:\n        pass\nreturn won\n",
    )
probe(
    "write_through_links_in_the_scratch_directory",
    """
    import os
    os.symlink("@DIR@/keep.txt", "link")
    os.symlink("@DIR@", "folder")
    won = 0
    for path in ("link", "folder/@MARK@", "folder/keep.txt"):
        try:
            with open(path, "a") as out:
                out.write("x")
            won += 1
        except OSError:
            pass
    return won
    """,
)
with_wrong(
    "scratch_directory_hard_to_remove",
    """
    import os
    for number in range(2000):
        open("f%d" % number, "w").close()
    for _ in range(300):
        os.mkdir("d" * 100)
        os.chdir("d" * 100)
        os.mkdir("locked")
        open("locked/x", "w").close()
        os.chmod("locked", 0)
    os.mkfifo("pipe")
    open(b"\\xff\\xfe\\n", "w").close()
    """,
    control="scratch_files",
    cpu_s=2.0,
)
probe(
    "disk_filled",
    """
    data, kept = bytes(1 << 20), 0
    for number in range(400):
        try:
            with open(str(number), "wb") as out:
                out.write(data)
            kept += 1
        except OSError:
            break
    return kept >= 400
    """,
    needs="disk",
    cpu_s=2.0,
)
in_wrong(
    "file_beyond_its_limit",
    "with open('big', 'wb') as out:\n    out.write(bytes(64 << 20))",
    control="scratch_files",
    status=("runtime_error", "killed"),
)
