"""Who wrote it, held against the truth: a command writes in every way there is, while somebody else saves files.

The short mode takes seconds. CKPT_LONG=1 repeats the campaign twenty times and starts 10,000 processes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from ckpt_run.capture import witness
from ckpt_run.capture.model import By

LONG = os.environ.get("CKPT_LONG") == "1"
ROUNDS = 20 if LONG else 1
PROCESSES = 10_000 if LONG else 400
EACH = 25
OTHERS = 200

pytestmark = pytest.mark.skipif(not witness.probe().works, reason=f"no traced witness here: {witness.probe()}")

PLAIN = """
import os, sys
for number in range(int(sys.argv[1])):
    with open(f"plain/{number}", "w") as file:
        file.write("by the command\\n")
    with open(f"renamed/{number}.tmp", "w") as file:
        file.write("by the command\\n")
    os.replace(f"renamed/{number}.tmp", f"renamed/{number}")
"""
THREADS = """
import sys, threading
def write(number):
    with open(f"threads/{number}", "w") as file:
        file.write("by the command\\n")
threads = [threading.Thread(target=write, args=(number,)) for number in range(int(sys.argv[1]))]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
DAEMON = """
import os, sys, time
ready, over = os.pipe()
if not os.fork():
    os.setsid()
    if not os.fork():
        os.close(ready)
        os.chdir("daemon")
        for number in range(int(sys.argv[1])):
            time.sleep(0.001)
            with open(str(number), "w") as file:
                file.write("by the command\\n")
    os._exit(0)
os.close(over)
os.read(ready, 1)
time.sleep(0.05)
"""
NODE = """
const fs = require("fs");
for (let number = 0; number < Number(process.argv[2]); number++)
  if (number % 2) fs.writeFileSync(`node/${number}`, "by the command\\n");
  else fs.promises.writeFile(`node/${number}`, "by the command\\n");
"""
STATIC = """
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {
    for (int number = 0; number < atoi(words[1]); number++) {
        char name[64];
        snprintf(name, sizeof name, "static/%d", number);
        int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (write(fd, "by the command\\n", 15) != 15) return 1;
        close(fd);
    }
    return 0;
}
"""
SOMEBODY_ELSE = """
import os, random, sys, time
random.seed(int(sys.argv[1]))
for number in random.sample(range(int(sys.argv[2])), int(sys.argv[2])):
    name = f"user/{number}"
    if number % 2:
        with open(name, "w") as file:
            file.write("by the user\\n")
    else:
        with open(name + "~", "w") as file:
            file.write("by the user\\n")
        os.replace(name + "~", name)
    if number % 20 == 0:
        with open(f"plain/{number % int(sys.argv[3])}", "a") as file:
            file.write("by the user too\\n")
    time.sleep(random.random() / 500)
"""
WAYS = ("plain", "renamed", "grandchildren", "threads", "daemon", "git", "node", "static")


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of the campaign, made once."""
    folder = tmp_path_factory.mktemp("tools")
    for name, text in {"plain": PLAIN, "threads": THREADS, "daemon": DAEMON, "else": SOMEBODY_ELSE}.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "node.js").write_text(NODE)
    (folder / "static.c").write_text(STATIC)
    if shutil.which("gcc"):
        built = ["gcc", "-static", "-o", str(folder / "static"), str(folder / "static.c")]
        subprocess.run(built, check=False, capture_output=True, stdin=subprocess.DEVNULL)
    return folder


def git(top: Path, *words: str) -> None:
    """Run Git in the project."""
    command = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "gc.auto=0", *words]
    subprocess.run(command, cwd=top, check=True, stdin=subprocess.DEVNULL, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose files all stand committed, half of them; Git has others on a branch."""
    top = tmp_path / "project"
    for way in (*WAYS, "user"):
        (top / way).mkdir(parents=True)
        for number in range(0, EACH if way != "user" else OTHERS, 2):
            (top / way / str(number)).write_text("before\n")
    git(top, "init", "-q", "-b", "main")
    git(top, "add", ".")
    git(top, "commit", "-q", "-m", "Before")
    git(top, "checkout", "-q", "-b", "branch")
    for number in range(EACH):
        (top / "git" / str(number)).write_text("by the command\n")
    git(top, "add", ".")
    git(top, "commit", "-q", "-m", "Branch")
    git(top, "checkout", "-q", "main")
    return top


def snapshot(top: Path) -> dict[bytes, tuple[int, str]]:
    """Every path below the top with its mode and the digest of its bytes."""
    found = {}
    for folder, folders, names in os.walk(os.fsencode(top)):
        folders[:] = [name for name in folders if name != b".git"]
        for name in names:
            path = folder + b"/" + name
            info = os.lstat(path)
            with open(path, "rb") as file:
                digest = hashlib.sha256(file.read()).hexdigest()
            found[os.path.relpath(path, os.fsencode(top))] = (info.st_mode, digest)
    return found


def changed(before: dict[bytes, tuple[int, str]], after: dict[bytes, tuple[int, str]]) -> set[bytes]:
    """Paths that are not as they were."""
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}


def script(tools: Path) -> tuple[str, list[str]]:
    """The command as a shell script, and the ways it has here."""
    python = sys.executable
    lines = {
        "plain": f"{python} {tools}/plain.py {EACH}",
        "renamed": ":",
        "grandchildren": f"i=0; while [ $i -lt {EACH} ]; do (sh -c \"echo 'by the command' > grandchildren/$i\" &);"
        " i=$((i+1)); done",
        "threads": f"{python} {tools}/threads.py {EACH}",
        "daemon": f"{python} {tools}/daemon.py {EACH}",
        "git": "git checkout -q branch -- git",
    }
    if shutil.which("node"):
        lines["node"] = f"node {tools}/node.js {EACH}"
    if (tools / "static").exists():
        lines["static"] = f"{tools}/static {EACH}"
    return "set -e\n" + "\n".join(lines.values()) + "\nsleep 0.2\n", list(lines)


def run(top: Path, journal: Path, argv: list[str], environment: dict[str, str] | None = None) -> witness.Trace:
    """Run a command under the witness, as the wrapper does; it must end with 0."""
    session = witness.start(os.fsencode(os.path.realpath(top)), os.fsencode(journal))
    assert session is not None
    program = os.fsencode(shutil.which(argv[0]) or argv[0])
    variables = {os.fsencode(name): os.fsencode(value) for name, value in (environment or os.environ).items()}
    here = os.getcwd()
    os.chdir(top)
    try:
        session.spawn(program, [os.fsencode(word) for word in argv], variables)
    finally:
        os.chdir(here)
    assert session.wait() == 0
    session.end(wait=True)
    assert session.verdict.works
    return witness.read_journal(os.fsencode(journal))


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_every_write_of_the_command_is_seen_and_nobody_elses_is_taken(
    project: Path, tools: Path, tmp_path: Path, seed: int
) -> None:
    before = snapshot(project)
    text, ways = script(tools)
    words = [sys.executable, str(tools / "else.py"), str(seed), str(OTHERS), str(EACH)]
    with subprocess.Popen(words, cwd=project, stdin=subprocess.DEVNULL) as somebody_else:
        trace = run(project, tmp_path / "journal", ["sh", "-c", text])
        assert somebody_else.wait(60) == 0
    by = witness.attribute(changed(before, snapshot(project)), trace)
    assert not trace.gaps
    expected = {f"{way}/{number}".encode() for way in ways for number in range(EACH)}
    users = {f"user/{number}".encode() for number in range(OTHERS)}
    assert expected <= by.keys()
    assert users <= by.keys()
    missed = {path for path in by if path not in users and by[path] != By.TRACED}
    taken = {path for path in users if by[path] != witness.OTHER}
    assert (missed, taken) == (set(), set())


def test_a_process_tree_that_dies_by_the_hundred_is_seen_to_the_last(tmp_path: Path) -> None:
    top = tmp_path / "project"
    top.mkdir()
    loop = f"i=0; while [ $i -lt {PROCESSES} ]; do /bin/sh -c ': > f'$i; i=$((i+1)); done"
    trace = run(top, tmp_path / "journal", ["sh", "-c", loop])
    assert {f"f{number}".encode() for number in range(PROCESSES)} == trace.touched.keys()
    assert not trace.gaps


def test_two_commands_at_once_keep_their_changes_apart(tmp_path: Path) -> None:
    top = tmp_path / "project"
    top.mkdir()
    journals = [os.fsencode(tmp_path / name) for name in ("one", "two")]
    sessions = [witness.start(os.fsencode(os.path.realpath(top)), journal) for journal in journals]
    for name, session in zip(("a", "b"), sessions, strict=True):
        assert session is not None
        text = f"for i in 1 2 3 4 5 6 7 8 9; do echo {name} > {top}/{name}$i; echo {name} > {top}/both; done"
        session.spawn(b"/bin/sh", [b"sh", b"-c", text.encode()], {})
    for session in sessions:
        assert session is not None
        assert session.wait() == 0
        session.end()
    one, two = (witness.read_journal(journal) for journal in journals)
    assert one.touched.keys() == {f"a{number}".encode() for number in range(1, 10)} | {b"both"}
    assert two.touched.keys() == {f"b{number}".encode() for number in range(1, 10)} | {b"both"}


@pytest.mark.parametrize("machine", ["gdb", "strace"])
def test_a_debugger_inside_the_command_works_and_what_it_runs_is_traced(tmp_path: Path, machine: str) -> None:
    if not shutil.which(machine):
        pytest.skip(f"{machine} is not installed")
    top = tmp_path / "project"
    top.mkdir()
    writes = "echo x > written"
    words = {
        "gdb": ["gdb", "-q", "-batch", "-nx", "-ex", "run", "--args", "/bin/sh", "-c", writes],
        "strace": ["strace", "-f", "-o", str(tmp_path / "log"), "sh", "-c", writes],
    }[machine]
    trace = run(top, tmp_path / "journal", words)
    assert trace.has_touched(b"written")
    if machine == "strace":
        assert "written" in (tmp_path / "log").read_text()


def test_a_storm_of_signals_neither_loses_a_write_nor_breaks_one(tmp_path: Path) -> None:
    top = tmp_path / "project"
    top.mkdir()
    program = textwrap.dedent("""
        import os, signal
        heard = 0
        def hear(number, frame):
            global heard
            heard += 1
        signal.signal(signal.SIGALRM, hear)
        signal.siginterrupt(signal.SIGALRM, True)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        for number in range(300):
            with open(f"f{number}", "w") as file:
                file.write("x")
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert heard > 10, heard
    """)
    started = time.monotonic()
    trace = run(top, tmp_path / "journal", [sys.executable, "-c", program])
    assert len([path for path in trace.touched if path.startswith(b"f")]) == 300
    assert not trace.gaps
    assert time.monotonic() - started < 60
