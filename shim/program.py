"""Which file a shell would execute for a word. Executes nothing, and knows no function or alias of a shell."""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def found(name: bytes, environment: Mapping[bytes, bytes]) -> tuple[bytes, int]:
    """Return the file that a shell with this environment would execute, and 0, or an errno if it would not.

    ENOENT: there is none. EISDIR: a folder. EACCES: there are only files without permission to execute.
    """
    if b"/" in name:
        return name, _obstacle(name)
    denied = None
    for folder in environment.get(b"PATH", os.fsencode(os.defpath)).split(b":") if name else ():
        path = (folder or b".") + b"/" + name
        obstacle = _obstacle(path)
        if not obstacle:
            return path, 0
        if obstacle == errno.EACCES and denied is None and os.path.isfile(path):
            denied = path
    return (denied, errno.EACCES) if denied else (name, errno.ENOENT)


def _obstacle(path: bytes) -> int:
    """Why a file cannot be executed, as an errno; 0 if it can."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        return error.errno or errno.EIO
    if mode & 0o170000 == 0o040000:
        return errno.EISDIR
    return 0 if os.access(path, os.X_OK) else errno.EACCES
