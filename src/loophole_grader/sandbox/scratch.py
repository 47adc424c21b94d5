"""Emptying the scratch directory, whatever a program did to its permissions or shape."""

# ruff: noqa: PTH101, PTH104, PTH106, PTH108, PTH112, PTH114, PTH118, PTH208

import os


def empty_folder(folder: str) -> None:
    """Remove everything in a folder. A tree of any depth, without recursion and with one open file at a time: what lies
    in a subfolder moves up, beside it, before the subfolder goes."""
    os.chmod(folder, 0o700)
    fresh = 0
    todo = os.listdir(folder)
    while todo:
        path = os.path.join(folder, todo.pop())
        if os.path.islink(path) or not os.path.isdir(path):
            os.unlink(path)
            continue
        os.chmod(path, 0o700)
        for name in os.listdir(path):
            while os.path.lexists(moved := os.path.join(folder, f"{fresh}.moved")):
                fresh += 1
            inner = os.path.join(path, name)
            if os.path.isdir(inner) and not os.path.islink(inner):
                os.chmod(inner, 0o700)  # a folder is written to when its parent changes
                os.rename(inner, moved)
                todo.append(os.path.basename(moved))  # noqa: PTH119
                fresh += 1
            else:
                os.unlink(inner)
        os.rmdir(path)
