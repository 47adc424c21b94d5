"""Prints parts of a program: as ast.unparse does, or as they stand there where it cannot.

What it cannot print: an integer of more than 4300 digits, which it would write in decimals, and some f-strings. Standard
library only; it runs inside the judged process, before the program does.
"""

import ast

MAIN_BLOCK = "if __name__ == '__main__':"  # as ast.unparse writes it


class Printer:
    """Prints statements of one program."""

    def __init__(self, code: str) -> None:
        # Lines as the compiler counts them; it counts columns in bytes.
        self.lines = code.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", "surrogatepass").split(b"\n")

    def of(self, node: ast.stmt, indent: str = "") -> str:
        """A statement, indented by so much (four or nothing)."""
        # Printed within a class: indenting afterwards would change the lines of a string.
        text = _printed(ast.ClassDef("_", [], [], [node], []) if indent else node)
        if text is None:
            return self.as_written(node, indent)
        return text.partition("\n")[2] if indent else text

    def has_main_block(self, function: ast.FunctionDef) -> bool:
        """Whether a main block is in it. The benchmark looks for it in the text, as ast.unparse writes it."""
        text = _printed(function)
        if text is not None:
            return MAIN_BLOCK in text
        return any(
            f"if {_printed(node.test)}:" == MAIN_BLOCK for node in ast.walk(function) if isinstance(node, ast.If)
        )

    def as_written(self, node: ast.stmt, indent: str) -> str:
        """The lines of a statement, indented otherwise, but for those that begin within a string."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        first, margin, new = first_line(node), b"", indent.encode()
        lines = self.lines[first - 1 : node.end_lineno]
        lines[-1] = lines[-1][: node.end_col_offset]
        if not lines[0][: node.col_offset].strip():  # else another statement stands before it, on its line
            margin = lines[0][: node.col_offset]
        strings = (
            part for part in ast.walk(node) if isinstance(part, (ast.JoinedStr, ast.Constant)) and part.end_lineno
        )
        within = {number for part in strings for number in range(part.lineno + 1, (part.end_lineno or 0) + 1)}
        text = [new + lines[0][node.col_offset :]]
        for number, line in enumerate(lines[1:], first + 1):
            text.append(line if number in within else new + line.removeprefix(margin))
        return b"\n".join(text).decode("utf-8", "surrogatepass")


def _printed(node: ast.AST) -> str | None:
    try:
        return ast.unparse(node)
    except Exception:  # noqa: BLE001  whatever it cannot print
        return None


def first_line(node: ast.stmt) -> int:
    """Of a statement, its decorators included."""
    return min([node.lineno, *(mark.lineno for mark in getattr(node, "decorator_list", []))])
