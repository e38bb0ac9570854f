"""The verbs of `ckpt`, one module each. Only the module of the verb that was asked for is imported."""

from __future__ import annotations

import argparse
import io
import os
import sys
from importlib import import_module

from ckpt_run.capture.errors import CkptError, Fault
from ckpt_run.shim import card

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
_USAGE_FAULTS = (Fault.BAD_SETTING, Fault.PATH_OUTSIDE_PROJECT)
"""What was typed is at fault, unless a `file` is."""
_VERBS = {
    "log": ("log", "list the recovery points, newest first"),
    "show": ("show", "show one point: each change, and what Undo leaves"),
    "diff": ("diff", "show what a point changed, as a unified diff"),
    "undo": ("undo", "put back what a point changed, and touch nothing else"),
    "rewind": ("undo", "undo a point and every later one"),
    "redo": ("undo", "take the last undo back"),
    "recover": ("recover", "finish what a crash left open"),
    "status": ("status", "show what is kept, and the limits"),
    "verify": ("verify", "read everything that is kept, and check it"),
    "prune": ("prune", "forget the oldest points"),
    "purge": ("purge", "forget a path or a point for good"),
    "config": ("config", "show or set the settings"),
    "doctor": ("doctor", "show what works here, and what does not"),
}
"""Each verb with its module and what its help says."""


def main(words: list[str] | None = None) -> int:
    """Do what the command line says; gives the exit code: 0, 1 failed, 2 usage, and what undo says."""
    given = sys.argv[1:] if words is None else words
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that knows no `·` gets its number
            stream.reconfigure(errors="backslashreplace")
    verb = next((word for word in given if not word.startswith("-")), None)
    parser = argparse.ArgumentParser(
        prog="ckpt",
        description="Shows and takes back what commands run with ckpt-run did to the files of this Git project.",
        epilog="ckpt VERB --help says more of a verb.",
    )
    parser.add_argument("--version", action="version", version=card.version() if "--version" in given else "")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    for name, (module, about) in _VERBS.items():
        child = verbs.add_parser(name, help=about, description=about)
        if name == verb:
            import_module(f"ckpt_run.shim.cli.{module}").add_arguments(child, name)
    options = parser.parse_args(given)
    if options.verb is None:
        parser.print_help()
        return EXIT_USAGE if given else 0
    return _told(options)


def _told(options: argparse.Namespace) -> int:
    """Run the verb; a fault becomes one clear sentence on stderr."""
    try:
        return int(options.run(options))
    except CkptError as fault:
        nothing = getattr(options, "says_without_points", None)
        if fault.fault == Fault.NO_POINTS and nothing is not None and not getattr(options, "json", False):
            card.tell(nothing)
            return 0
        card.warn(f"ckpt: {card.fault(fault)}")
        if getattr(options, "json", False):
            from ckpt_run.shim.cli.output import print_fault

            print_fault(fault)
        is_usage = fault.fault in _USAGE_FAULTS and fault.facts.get("file") is None
        return EXIT_USAGE if is_usage else EXIT_FAILED
    except BrokenPipeError:
        # Whoever read our output has seen enough; nothing may be written to it while Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except KeyboardInterrupt:
        card.warn(f"\nckpt: {card.INTERRUPTED}")
        return EXIT_INTERRUPTED
