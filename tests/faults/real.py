"""A real project, with the real programs run in it: stories of locks, full disks and odd files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from .world import Snapshot, snapshot

IS_ROOT = os.geteuid() == 0
CKPT = "import sys; from ckpt_run.shim.cli import main; sys.exit(main())"
CKPT_RUN = "import sys; from ckpt_run.shim.run import main; sys.exit(main())"
SOURCES = str(Path(__file__).resolve().parents[2] / "src")


class Project:
    """A Git project with one commit, and what a person types in it."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.environment = {**os.environ, "PYTHONPATH": SOURCES}
        top.mkdir(parents=True, exist_ok=True)
        self.type("git", "init", "-q")
        (top / "a").write_text("old\n")
        (top / "b").write_text("old\n")
        self.type("git", "add", "-A")
        self.type("git", "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "first")

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            words,
            cwd=self.top,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def type(self, *words: str) -> subprocess.CompletedProcess[str]:
        return ended(self.start(*words))

    def start_run(self, script: str) -> subprocess.Popen[str]:
        return self.start(sys.executable, "-c", CKPT_RUN, "--", "sh", "-c", script)

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        return ended(self.start_run(script))

    def start_ckpt(self, *words: str) -> subprocess.Popen[str]:
        return self.start(sys.executable, "-c", CKPT, *words)

    def ckpt(self, *words: str) -> subprocess.CompletedProcess[str]:
        return ended(self.start_ckpt(*words))

    def snapshot(self) -> Snapshot:
        return snapshot(os.fsencode(self.top))

    def store(self) -> Path:
        """The project's folder in the store."""
        (folder,) = (Path(self.environment["CKPT_HOME"]) / "projects").iterdir()
        return folder


def ended(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    out, errors = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, out, errors)


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """A file system of its own, of that size; skips the test where that cannot be had."""
    if not IS_ROOT:
        pytest.skip("only root mounts")
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0755", "ckpt-test", str(place)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.decode()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> Path:
    """Fill the file system at the folder to the last byte."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    return filler
