"""Merging three texts with Git's own merge-file. Knows nothing of projects; the bytes it is given stay as they are.

It promises a result only where no two changes meet; line ends and a missing last newline are kept as they stand.
"""

from __future__ import annotations

import os
import tempfile

from ckpt_run.capture import git


def is_text(data: bytes) -> bool:
    """Say whether the bytes can be merged line by line: no NUL among them."""
    return b"\0" not in data


def merged(base: bytes, ours: bytes, theirs: bytes, *, scratch: bytes) -> bytes | None:
    """Merge the changes `base -> ours` and `base -> theirs`; None where they overlap, or Git cannot say.

    The three files stand for the moment in a private folder made below `scratch`, which lies outside any project.
    """
    with tempfile.TemporaryDirectory(prefix=b"merge-", dir=scratch) as folder:
        for name, data in ((b"ours", ours), (b"base", base), (b"theirs", theirs)):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(data)
        names = [os.path.join(folder, name) for name in (b"ours", b"base", b"theirs")]
        asked = git.Process([b"-C", folder, b"merge-file", b"-p", b"-q", *names], _sealed(folder))
        code, out, _ = asked.finish()
    # git-merge-file(1): the exit code is the number of conflicts, and negative (255) for an error.
    return out if code == 0 else None


def _sealed(folder: bytes) -> dict[bytes, bytes]:
    """An environment in which no repository and no settings are found."""
    return {
        b"PATH": os.environb.get(b"PATH", os.defpath.encode()),
        b"HOME": folder,
        b"XDG_CONFIG_HOME": folder,
        b"LC_ALL": b"C",
        b"GIT_CONFIG_NOSYSTEM": b"1",
        b"GIT_CONFIG_GLOBAL": b"/dev/null",  # since Git 2.32; before, HOME decides
        b"GIT_CEILING_DIRECTORIES": os.path.dirname(folder),
    }
