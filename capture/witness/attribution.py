"""Who changed what: the changes of a run held against its trace. Pure.

The trace is evidence of an attempt: what changed is decided by comparing entries, and only then by whom.
"""

from __future__ import annotations

from ckpt_run.capture.model import By

from .journal import is_below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ckpt_run.capture.model import Path

    from .journal import Trace

OTHER = "other"
"""Not the command's: the trace is complete, and no process of the command touched the path."""


def attribute(
    changed: Iterable[Path],
    trace: Trace | None,
    identities: Mapping[Path, tuple[int, int]] | None = None,
) -> dict[Path, str]:
    """Say for each changed path who did it: `By.TRACED`, `By.TIME` (nobody can say) or `OTHER`.

    `identities` gives (dev, ino) of a changed file before or after, so that a write through another of its names is
    found; without it such a file is `By.TIME` once the command touched any file with several names.
    """
    if trace is None:
        return dict.fromkeys(changed, By.TIME)
    return {path: _by(path, trace, (identities or {}).get(path)) for path in changed}


def _by(path: Path, trace: Trace, identity: tuple[int, int] | None) -> str:
    if path in trace.touched or identity in trace.linked or is_below(path, trace.trees):
        return By.TRACED
    if not trace.complete or (trace.linked and identity is None):
        return By.TIME
    return OTHER
