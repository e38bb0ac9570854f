"""Where a command plays: a copied room, the tools under test, and their answers as bytes and JSON.

`ORACLE_TOOLS` names another folder that holds `ckpt-run` and `ckpt` (an installed wheel, for example); else the
ones beside this Python are tried.
"""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .project import CLOCK
from .variants import Rooms

TOOLS = Path(os.environ.get("ORACLE_TOOLS") or sysconfig.get_path("scripts"))
NOTE = b"ckpt: "
SECONDS_MAX = 60.0


class Ended(NamedTuple):
    """How a program ended: exit code (negative: the signal), stdout, stderr."""

    code: int
    out: bytes
    err: bytes

    @property
    def json(self) -> Any:
        """Read stdout as a JSON object; what is none fails the test with both streams shown."""
        assert self.out.startswith(b"{"), self
        return json.loads(self.out)


class Stage:
    """One room with a project in it, always at the same path, so that two copies print the same."""

    def __init__(self, rooms: Rooms, base: Path, name: str, tools: Path = TOOLS) -> None:
        """Copy the variant `name` to `base / "room"`; try the programs in the folder `tools`."""
        self.tools = tools
        self._rooms, self._base, self._name = rooms, base, name
        self.room = base / "room"
        self.top = self.room / "project"
        self._past = 0
        self._variant = rooms.copy(name, self.room)

    def again(self) -> None:
        """Put the used room aside and a fresh copy in its place."""
        self._past += 1
        self.room.rename(self._base / f"past-{self._past}")
        self._rooms.copy(self._name, self.room)

    @property
    def git_folders(self) -> list[Path]:
        """Every folder whose `.git` counts: the project, and the main worktree of a linked one."""
        return [place for place in (self.top, self.room / "main") if place.exists()]

    def run(self, argv: Sequence[str | bytes], variables: Mapping[str, str] | None = None) -> Ended:
        """Run a program where the variant's commands run, without a terminal or stdin."""
        where = self.top / self._variant.folder
        if not where.is_dir():
            where = self.top
        ended = subprocess.run(
            argv,
            cwd=where,
            env={**os.environ, **CLOCK, "FEED": str(self.room / "feed"), **(variables or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            umask=self._variant.umask,
            timeout=SECONDS_MAX,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    def bare(self, command: str) -> Ended:
        """Run a shell command without the wrapper."""
        return self.run(["sh", "-c", command])

    def wrapped(self, command: str) -> Ended:
        """Run a shell command with the wrapper."""
        return self.run([str(self.tools / "ckpt-run"), "--", "sh", "-c", command])

    def ckpt(self, *argv: str) -> Ended:
        """Run a verb of `ckpt`."""
        return self.run([str(self.tools / "ckpt"), *argv])

    def point(self) -> dict[str, Any] | None:
        """Return what `ckpt show --json` says of the newest point, None when there is none."""
        shown = self.ckpt("show", "--json")
        assert shown.code in (0, 1), shown
        return shown.json if shown.code == 0 else None


def left(point: Mapping[str, Any]) -> dict[bytes, str]:
    """Return the gaps of a shown point, path to reason; a gap without a reason fails."""
    gaps = {os.fsencode(c["path"]): c["reason"] for c in point["changes"] if c["undo"] == "leave"}
    assert all(gaps.values()), point
    return gaps


def ancestors(path: bytes) -> Iterator[bytes]:
    """Yield the folders above a path, nearest first."""
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path


def without_notes(err: bytes) -> bytes:
    """Take the wrapper's own lines out of what a command wrote to stderr."""
    return b"".join(line for line in err.splitlines(keepends=True) if not line.startswith(NOTE))
