"""Whether and how a run is traced: asks the witness, and says where it cannot. Imported by traced runs alone."""

from __future__ import annotations

from ckpt_run.capture import tracing, witness
from ckpt_run.shim import card

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckpt_run.capture.aftermath import Touched
    from ckpt_run.capture.baseline import Baseline
    from ckpt_run.capture.model import Run
    from ckpt_run.capture.spool import Spool
    from ckpt_run.capture.tracing import Evidence
    from ckpt_run.capture.witness.session import Session
    from ckpt_run.shim.config import Settings


def begin(
    settings: Settings, run: Run, baseline: Baseline, spool: Spool, environment: Mapping[bytes, bytes]
) -> Session | None:
    """The door through which the command is traced; None where it shall not be, or cannot."""
    if not tracing.is_wanted(settings.trace, run.argv, environment):
        return None
    session = tracing.start(baseline, spool, settings.limits, environment)
    if session is None and settings.trace == "always":
        card.warn(card.not_traced(witness.possible().why))
    return session


def evidence(
    session: Session, settings: Settings, baseline: Baseline, spool: Spool, touched: Touched
) -> Evidence | None:
    """What the trace of the command that ended told, joined to `touched`; None where the kernel refused it."""
    if not session.verdict.works:
        if settings.trace == "always":
            card.warn(card.not_traced(session.verdict.why))
        return None
    found = tracing.evidence(baseline, spool)
    if session.verdict.no_new_privs and found.trace.privileged:
        card.warn(card.powerless(found.trace.privileged))
    found.join(touched)
    return found
