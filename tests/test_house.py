"""The house stands: imports run one way, the import name is ours alone, and the hot path stays light.

Counts modules and processes, never milliseconds: `scripts/bench` measures those.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import grimp
import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {"capture", "shim", "integration"}
WORDS = {"ckpt_run.capture.model", "ckpt_run.capture.reasons", "ckpt_run.capture.errors"}
# Modules that know only these of ours, whatever else the contracts would allow.
KNOWS_ONLY = {
    "ckpt_run.shim.card": WORDS,
    "ckpt_run.capture.durable": {"ckpt_run.capture.errors"},
    "ckpt_run.capture.model": set(),
    "ckpt_run.capture.reasons": set(),
    "ckpt_run.capture.errors": set(),
}
# What a run must not import on its way to the command: each costs milliseconds at start-up.
HEAVY = {
    *("git", "gitdb", "sh", "typer", "click", "rich", "psutil", "pexpect", "platformdirs", "tomli_w"),
    *("dataclasses", "tomllib", "subprocess", "typing", "pathlib", "json", "argparse", "re", "sqlite3", "hashlib"),
    *("enum", "ctypes", "logging", "contextlib", "functools", "tempfile", "shutil", "inspect", "asyncio"),
    *("threading", "socket", "selectors", "signal", "importlib.metadata", "importlib.resources", "random"),
    *("collections", "datetime", "locale", "unittest", "copy", "uuid", "secrets"),
}
# Modules of the standard library and our own, beyond those of a bare start of the interpreter.
HOT_MODULES_MAX = 32
# git rev-parse, git config, git status; the sentinel of the process group; the command. In large projects, where no
# survey can tell what changed, a second git status.
HOT_PROCESSES_MAX = 5

RUN = "import sys; from ckpt_run.shim.run import main; sys.exit(main())"
# Written at once and unbuffered: the wrapper may end without Python's own farewell.
RUN_WITH_PROCESSES_LOGGED = """
import os, sys
log = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
def hear(event, args):
    if event in ("os.posix_spawn", "os.fork", "os.forkpty", "os.system", "subprocess.Popen"):
        os.write(log, f"{event} {args[1] if len(args) > 1 else ''}\\n".encode(errors="replace"))
sys.addaudithook(hear)
from ckpt_run.shim.run import main
sys.exit(main())
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project, everything committed."""
    top = tmp_path / "project"
    top.mkdir()
    for number in range(20):
        (top / f"file{number}.txt").write_text(f"{number}\n")
    git = ["git", "-C", str(top), "-c", "user.name=A", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "All"]):
        subprocess.run([*git, *words], check=True, stdin=subprocess.DEVNULL)
    return top


def python(program: str, *words: str, cwd: Path, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run a program in the interpreter of these tests; it must end with 0."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(
        [sys.executable, *options, "-c", program, *words],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended


def imported(listing: str) -> set[str]:
    """Names of the modules in what `python -X importtime` wrote."""
    lines = [line for line in listing.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines[1:]}


def hot_modules(project: Path) -> set[str]:
    """What a run of `true` imports beyond a bare start of the interpreter, in a project that had a run before."""
    python(RUN, "--", "true", cwd=project)  # the first run of a project makes its folder in the store
    bare = imported(python("pass", cwd=project, options=("-X", "importtime")).stderr)
    ours = imported(python(RUN, "--", "true", cwd=project, options=("-X", "importtime")).stderr)
    assert "ckpt_run.shim.run" in ours
    return ours - bare


def started(project: Path, log: Path, *command: str) -> list[str]:
    """What a run of the command starts, one line a process."""
    python(RUN_WITH_PROCESSES_LOGGED, str(log), "--", *command, cwd=project)
    return log.read_text().splitlines()


def python_files() -> list[Path]:
    """Every Python file of the checkout, the developer commands included."""
    files = [ROOT / "src" / "ckpt_run" / "__init__.py", *(ROOT / "scripts").iterdir()]
    return files + [path for folder in (*FOLDERS, "tests") for path in (ROOT / folder).rglob("*.py")]


def bare_imports(source: str) -> list[str]:
    """Imports of our folders by their bare names, anywhere in the source."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        found += [f"{getattr(node, 'lineno', 0)}: {name}" for name in names if name.partition(".")[0] in FOLDERS]
    return found


def test_imports_run_one_way() -> None:
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True, no_logo=True) == 0


def test_every_module_has_its_layer() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    graph = grimp.build_graph("ckpt_run", cache_dir=None)
    for contract in settings["contracts"]:
        for container in contract.get("containers", []):
            named = {word.strip(" ()") for layer in contract["layers"] for word in layer.split(":")}
            children = {child.rpartition(".")[2] for child in graph.find_children(container)}
            assert children <= named, f"name these in a layer of {container} in pyproject.toml"


@pytest.mark.parametrize("module", KNOWS_ONLY)
def test_leaves_know_only_the_words(module: str) -> None:
    graph = grimp.build_graph("ckpt_run", cache_dir=None)
    family = {module, *graph.find_descendants(module)}
    known = {name for one in family for name in graph.find_modules_directly_imported_by(one)}
    assert known - family <= KNOWS_ONLY[module]


def test_bare_imports_are_seen_wherever_they_hide() -> None:
    hidden = """
    import shim.run
    def late():
        from capture.undo import plan
        from . import capture
        from ckpt_run.capture import model
    """
    assert bare_imports(textwrap.dedent(hidden)) == ["2: shim.run", "4: capture.undo"]


def test_nobody_imports_a_folder_by_its_bare_name() -> None:
    files = python_files()
    assert len(files) > 10
    found = {str(path): bare_imports(path.read_text()) for path in files}
    assert not {path: names for path, names in found.items() if names}


def test_importing_a_folder_by_its_bare_name_fails() -> None:
    for folder in sorted(FOLDERS):
        asked = subprocess.run(
            [sys.executable, "-P", "-c", f"import {folder}"],
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        assert "ModuleNotFoundError" in asked.stderr


def test_a_project_with_its_own_shim_and_capture_is_left_alone(project: Path) -> None:
    for name in ("shim", "capture", "integration"):
        (project / name).mkdir()
        (project / name / "__init__.py").write_text(
            "raise SystemExit('the code of the project ran in the wrapper')\n"
        )
    wrapper = Path(sys.executable).with_name("ckpt-run")
    environment = {**os.environ, "PYTHONPATH": "."}
    ended = subprocess.run(
        [str(wrapper), "--", "sh", "-c", "echo fine; echo more >> file1.txt"],
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "fine\n"), ended.stderr


def test_a_clean_run_imports_nothing_heavy(project: Path) -> None:
    modules = hot_modules(project)
    assert sorted(modules & HEAVY) == []
    assert len(modules) <= HOT_MODULES_MAX, sorted(modules)


def test_uncommitted_work_makes_the_run_import_nothing_heavy(project: Path) -> None:
    (project / "file1.txt").write_text("uncommitted\n")
    (project / "new.txt").write_text("untracked\n")
    assert sorted(hot_modules(project) & HEAVY) == []


def test_a_clean_run_starts_few_processes(project: Path, tmp_path: Path) -> None:
    processes = started(project, tmp_path / "first", "true")
    assert any("true" in line for line in processes), processes
    assert len(processes) <= HOT_PROCESSES_MAX, processes


def test_uncommitted_work_starts_no_more_processes(project: Path, tmp_path: Path) -> None:
    for number in range(10):
        (project / f"file{number}.txt").write_text("uncommitted\n")
    assert len(started(project, tmp_path / "first", "true")) <= HOT_PROCESSES_MAX


def test_processes_started_by_any_door_are_counted(tmp_path: Path) -> None:
    program = RUN_WITH_PROCESSES_LOGGED.replace(
        "from ckpt_run.shim.run import main",
        "import subprocess; main = lambda: (os.waitpid(os.posix_spawn('/bin/sh', ['sh', '-c', ''], {}), 0),"
        " os.system(':'), subprocess.run(['true']), 0)[3]",
    )
    log = tmp_path / "log"
    python(program, str(log), cwd=tmp_path)
    assert [line.split()[0] for line in log.read_text().splitlines()] == [
        "os.posix_spawn",
        "os.system",
        "subprocess.Popen",
    ]
