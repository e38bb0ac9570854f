"""The style as a ratchet: sizes of functions and files, docstrings, who may print, words that stay outside.

Sizes are lines of the file, docstring and comments included. The limits go down, never up.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FUNCTION_LINES_MAX = 60
FUNCTION_LINES_P90 = 30
CODE_FILE_LINES_MAX = 400
TEST_FILE_LINES_MAX = 500
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
# Who may write to the person's terminal. The wrapper's one line and the verbs of `ckpt` say what the card tells them.
MAY_WRITE = {f"shim/{name}.py" for name in ("card", "question", "run", "process", "hook", "shell", "mcp")}
# Put together from parts, so that this file does not hold what it looks for.
LATER = ["TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK"]
OUTSIDE = [
    "/" + "work" + "/",
    "/" + "root" + "/",
    "/" + "opt" + "/",
    "." + "pyenv",
    "find" + "-links",
    "a-" + "seed-",
]
TEXT_ENDINGS = {
    ".py",
    ".md",
    ".toml",
    ".json",
    ".yaml",
    ".yml",
    ".lua",
    ".ts",
    ".js",
    ".svg",
    ".cfg",
    ".txt",
    ".sh",
    "",
}


def tracked() -> list[Path]:
    """Files of the checkout as Git lists them, those not yet added included, relative to it."""
    # Somebody else may own the checkout, as on many build machines; safe.directory counts from Git 2.37 here.
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = [Path(os.fsdecode(name)) for name in listed.stdout.split(b"\0") if name]
    return [name for name in names if (ROOT / name).is_file()]


def is_python(name: Path) -> bool:
    """Whether the file is Python, by its name or its first line."""
    if name.suffix:
        return name.suffix == ".py"
    return name.parts[0] == "scripts" and "python" in (ROOT / name).read_text().partition("\n")[0]


SOURCES = {str(name): (ROOT / name).read_text() for name in tracked() if is_python(name)}
CODE = {name: text for name, text in SOURCES.items() if name.startswith(("shim/", "capture/", "scripts/", "src/"))}
TESTS = {name: text for name, text in SOURCES.items() if name.startswith("tests/")}


def functions(sources: dict[str, str]) -> list[tuple[int, str]]:
    """Each function with its size in lines, as (lines, place)."""
    return [
        ((node.end_lineno or node.lineno) - node.lineno + 1, f"{name}:{node.lineno} {node.name}")
        for name, text in sources.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, FUNCTION)
    ]


def writes(text: str) -> list[int]:
    """Lines that write to the person: print, sys.stdout, sys.stderr, a descriptor 1 or 2 by number."""
    lines = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Name(id="print")):
                lines.append(node.lineno)
            case ast.Attribute(value=ast.Name(id="sys"), attr="stdout" | "stderr" | "__stdout__" | "__stderr__"):
                lines.append(node.lineno)
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="os"), attr="write"), args=[ast.Constant(value=1 | 2), *_]
            ):
                lines.append(node.lineno)
            case _:
                pass
    return lines


def swallowed(text: str) -> list[int]:
    """Lines of handlers that catch everything and do nothing with it."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in ("Exception", "BaseException"))
        and all(isinstance(line, ast.Pass | ast.Continue) for line in node.body)
    ]


def test_no_function_is_longer_than_a_screen() -> None:
    assert not [function for function in functions(SOURCES) if function[0] > FUNCTION_LINES_MAX]


def test_nine_functions_in_ten_are_short() -> None:
    sizes = sorted(size for size, _ in functions(CODE))
    assert sizes
    assert sizes[len(sizes) * 9 // 10] <= FUNCTION_LINES_P90


def test_files_hold_one_noun() -> None:
    too_long = {name: text.count("\n") for name, text in CODE.items() if text.count("\n") > CODE_FILE_LINES_MAX}
    too_long |= {name: text.count("\n") for name, text in TESTS.items() if text.count("\n") > TEST_FILE_LINES_MAX}
    assert not too_long


def test_every_module_says_what_it_owns() -> None:
    assert not [name for name, text in SOURCES.items() if not ast.get_docstring(ast.parse(text))]


def test_only_the_modules_that_talk_to_people_write_to_them() -> None:
    talking = {name for name, text in CODE.items() if writes(text)}
    allowed = {name for name in talking if name in MAY_WRITE or name.startswith(("shim/cli/", "scripts/"))}
    assert talking <= allowed


def test_the_capture_never_writes_to_people_by_any_door() -> None:
    every_door = "print('x')\nsys.stderr.write('x')\nos.write(2, b'x')\nos.write(fd, b'x')\nout = sys.stdout\n"
    assert sorted(writes(every_door)) == [1, 2, 3, 5]
    assert not {name for name, text in CODE.items() if name.startswith("capture/") and writes(text)}


def test_no_fault_is_swallowed() -> None:
    hidden = "try:\n    x()\nexcept Exception:\n    pass\ntry:\n    x()\nexcept OSError:\n    pass\n"
    assert swallowed(hidden) == [3]
    assert not {name: swallowed(text) for name, text in SOURCES.items() if swallowed(text)}


@pytest.mark.parametrize("word", LATER)
def test_nothing_is_left_for_later(word: str) -> None:
    assert not [name for name, text in SOURCES.items() if re.search(rf"\b{word}\b", text)]


@pytest.mark.parametrize("word", OUTSIDE)
def test_no_file_speaks_of_the_machine_it_was_written_on(word: str) -> None:
    texts = {name: ROOT / name for name in tracked() if name.suffix in TEXT_ENDINGS}
    assert len(texts) > 10
    assert not [str(name) for name, path in texts.items() if word in path.read_text(errors="replace")]


def test_each_test_has_a_name_of_its_own_in_its_file() -> None:
    for name, text in TESTS.items():
        tree = ast.parse(text)
        scopes: list[ast.Module | ast.ClassDef] = [tree]
        scopes += [node for node in tree.body if isinstance(node, ast.ClassDef)]
        for scope in scopes:
            names = Counter(node.name for node in scope.body if isinstance(node, FUNCTION))
            assert not {twice for twice, count in names.items() if count > 1}, name


def test_each_script_answers_help() -> None:
    scripts = [name for name in tracked() if name.parts[0] == "scripts"]
    assert len(scripts) >= 4
    for name in scripts:
        assert os.access(ROOT / name, os.X_OK), f"{name} is not executable"
        asked = subprocess.run(
            [str(ROOT / name), "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        assert asked.returncode == 0, asked.stderr
        assert asked.stdout.lower().startswith("usage:"), f"{name} --help says {asked.stdout[:80]!r}"
