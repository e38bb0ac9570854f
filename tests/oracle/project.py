"""A project somebody lives in: every state Git knows, odd names, odd kinds; built once, then copied.

A *room* is the folder around it: `project` (the worktree), `outside` (files that a link points to), `marks`
(where programs named in a hostile configuration would leave a trace) and `feed` (what some commands read).
"""

from __future__ import annotations

import io
import os
import shutil
import socket
import subprocess
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

LONG = b"n" * 255
LINES = "".join(f"line {number}\n" for number in range(1, 31))
BINARY = bytes(range(256)) * 12

ODD_NAMES = (
    b"new\nline",
    b"tab\tname",
    b"quote\"s' and \\back",
    b"bad\xff\xfeutf8",
    b"-dash",
    b"glob*[a]?",
    b"two  spaces ",
    b"dot.",
    b"caf\xc3\xa9",
    b"cafe\xcc\x81",
    b"Case.txt",
    LONG,
)

FIRST: dict[bytes, str | bytes] = {
    b"README.md": LINES,
    b"src/app.py": "import util\n\n\nprint(util.answer())\n",
    b"src/util.py": "def answer():\n    return 42\n",
    b"src/dirty.py": LINES,
    b"src/staged.py": LINES,
    b"src/both.py": LINES,
    b"src/deep/a/b/c/leaf.txt": "leaf\n",
    b"docs/guide.md": LINES,
    b"docs/notes.md": "notes\n",
    b"turn": "a file that is a folder on the other branch\n",
    b"gone.txt": "deleted in the worktree\n",
    b"cut.txt": "deleted in the index\n",
    b"data.bin": BINARY,
    b"empty.txt": "",
    b"no-newline.txt": "no newline at the end",
    b"run.sh": "#!/bin/sh\necho run\n",
    b"secret.txt": "hush\n",
    b"frozen.txt": "read only\n",
    b"crlf.txt": "one\r\ntwo\r\nthree\r\n",
    b"hard-1.txt": "two names\n",
    b"logs/kept.txt": "kept\n",
    **{b"odd/" + name: b"odd " + name[:20] + b"\n" for name in ODD_NAMES},
}
MODES = {b"run.sh": 0o755, b"secret.txt": 0o600, b"frozen.txt": 0o444}
LINKS = {
    b"link-file": b"README.md",
    b"link-folder": b"docs",
    b"link-out": b"../outside/precious.txt",
    b"link-absolute": b"/nonexistent/target",
    b"link-dangling": b"nowhere",
}
IGNORE = ".env\n*.db\n*.log\nbuild/\n"
IGNORED: dict[bytes, str | bytes] = {
    b".env": "TOKEN=1\n",
    b"local.db": BINARY[:700],
    b"app.log": "logged\n",
    b"build/out.o": BINARY[:400],
    b"build/deep/more.o": BINARY[:90],
}
UNTRACKED: dict[bytes, str | bytes] = {
    b"untracked.txt": "nobody has a copy\n",
    b"new/pkg/mod.py": "def new():\n    return 1\n",
    b"new/\xff\n": "odd and untracked\n",
    b"new/tool": "#!/bin/sh\n",
}

Change = Callable[[Path], None]


def git(top: Path, *argv: str, codes: tuple[int, ...] = (0,)) -> str:
    """Run Git in `top` with a pinned clock; return its output; fail on an exit code not in `codes`."""
    ended = subprocess.run(
        ["git", *argv], cwd=top, env={**os.environ, **CLOCK}, capture_output=True, check=False, text=True
    )
    assert ended.returncode in codes, (argv, ended.returncode, ended.stdout, ended.stderr)
    return ended.stdout


CLOCK = {
    "GIT_AUTHOR_DATE": "2024-05-06T07:08:09Z",
    "GIT_COMMITTER_DATE": "2024-05-06T07:08:09Z",
}
"""Pins object names, so that a command says the same with and without the wrapper."""


def write(top: Path, files: Mapping[bytes, str | bytes], modes: Mapping[bytes, int] | None = None) -> None:
    """Write these files below `top`, in place where they stand already, folders made as needed."""
    for name, content in files.items():
        path = os.path.join(os.fsencode(top), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
    for name, mode in (modes or {}).items():
        os.chmod(os.path.join(os.fsencode(top), name), mode)


def append(top: Path, name: str, text: str) -> None:
    """Add text at the end of a file."""
    with (top / name).open("a") as file:
        file.write(text)


def start(room: Path, *init: str, config: Mapping[str, str] | None = None, attributes: str = "") -> Path:
    """Make a room with a repository, its files written and nothing committed; return the worktree."""
    top = room / "project"
    for name in ("project", "outside", "marks", "feed"):
        (room / name).mkdir(parents=True)
    (room / "outside" / "precious.txt").write_text("outside the project\n")
    git(top, "init", "-q", "-b", "main", *init)
    identity = {"user.name": "Somebody", "user.email": "somebody@example.org", "advice.detachedHead": "false"}
    for key, value in {**identity, "gc.auto": "0", **(config or {})}.items():
        git(top, "config", key, value)
    write(top, FIRST, MODES)
    write(top, {b".gitignore": IGNORE, **({b".gitattributes": attributes} if attributes else {})})
    os.link(top / "hard-1.txt", top / "hard-2.txt")
    for link, target in LINKS.items():
        os.symlink(target, os.path.join(os.fsencode(top), link))
    return top


def commit_history(top: Path) -> None:
    """Commit three times on `main`, and leave the branches `other`, `feature` and `clash` beside it."""
    git(top, "add", "-A")
    git(top, "commit", "-qm", "first")
    for branch in ("other", "feature", "clash"):
        git(top, "branch", branch)
    for number, text in ((2, "docs, second"), (3, "docs, third")):
        append(top, "docs/guide.md", f"{text}\n")
        write(top, {b"README.md": LINES.replace("line 3\n", f"line 3 of main {number}\n")})
        git(top, "commit", "-qam", f"commit {number}")
    _commit_on(top, "feature", _feature)
    _commit_on(top, "clash", _clash)
    _commit_on(top, "other", _other)


def _commit_on(top: Path, branch: str, change: Change) -> None:
    git(top, "checkout", "-q", branch)
    change(top)
    git(top, "add", "-A")
    git(top, "commit", "-qm", f"work on {branch}")
    git(top, "checkout", "-q", "main")


def _feature(top: Path) -> None:
    append(top, "src/util.py", "\n\ndef question():\n    return '?'\n")
    write(top, {b"src/feature.py": "feature = True\n"})


def _clash(top: Path) -> None:
    write(top, {b"README.md": LINES.replace("line 3\n", "line 3 of the clash\n")})
    (top / "docs/guide.md").unlink()


def _other(top: Path) -> None:
    append(top, "src/util.py", "# other\n")
    (top / "docs/notes.md").unlink()
    (top / "turn").unlink()
    write(top, {b"turn/inside.txt": "inside\n", b"other-only/file.txt": "other\n"})
    (top / "run.sh").chmod(0o644)


def leave_work(top: Path) -> None:
    """Leave uncommitted work in every state that Git knows."""
    append(top, "src/dirty.py", "not staged\n")
    append(top, "src/staged.py", "staged\n")
    append(top, "src/both.py", "staged\n")
    write(top, {b"staged-new.txt": "staged, never committed\n", b"staged-lost.txt": "staged, then deleted\n"})
    git(top, "add", "src/staged.py", "src/both.py", "staged-new.txt", "staged-lost.txt")
    append(top, "src/both.py", "and more, not staged\n")
    for name in ("gone.txt", "staged-lost.txt"):
        (top / name).unlink()
    git(top, "rm", "-q", "cut.txt")
    leave_strangers(top)


def leave_strangers(top: Path) -> None:
    """Leave what Git does not track: untracked and ignored files, empty folders, a FIFO, a socket."""
    write(top, {**UNTRACKED, **IGNORED}, {b"new/tool": 0o700, b".env": 0o600})
    os.symlink("mod.py", top / "new/pkg/link")
    (top / "hollow/inner").mkdir(parents=True)
    (top / "hollow").chmod(0o750)
    os.mkfifo(top / "pipe", 0o640)
    here = Path.cwd()
    os.chdir(top)  # A socket's name has 108 bytes at most, and the room's path may have more.
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("sock")
    os.chdir(here)


def leave_feed(room: Path) -> None:
    """Leave what some commands read: a patch, an archive of files that stand in the project or do not."""
    top, feed = room / "project", room / "feed"
    (feed / "change.patch").write_text(
        git(top, "diff", "main", "other", "--", "src/util.py", "docs/notes.md", "run.sh")
    )
    with tarfile.open(feed / "tree.tar", "w") as archive:
        for name, text in (("README.md", b"from the archive\n"), ("unpacked/deep/file", b"new\n")):
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(text), 0o640, 1_700_000_000
            archive.addfile(member, io.BytesIO(text))


def age(top: Path) -> None:
    """Give each file an old mtime of its own, in the past: nothing is racy, and a rewrite shows."""
    for number, path in enumerate(sorted(os.walk(os.fsencode(top)))):
        folder, folders, names = path
        if b".git" in folders:
            folders.remove(b".git")
        if b"/.git" in folder:
            continue
        for name in names:
            moment = 1_700_000_000 + 60 * number
            os.utime(os.path.join(folder, name), (moment, moment), follow_symlinks=False)


def refresh(top: Path) -> None:
    """Let Git read the stat data of a copied worktree, so that its index is as fresh as the original's was."""
    git(top, "status", "--porcelain")


def copy_room(template: Path, room: Path) -> None:
    """Copy a room with its times, kinds, hard links and permission bits."""
    copier = shutil.which("cp")
    assert copier
    subprocess.run([copier, "-a", f"{template}/.", str(room)], check=True)
