"""The verbs of `ckpt`, one module each. Only the module of the verb that was asked for is imported."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module

from ckpt_run.capture.errors import CkptError
from ckpt_run.shim import card, card_verbs

EXIT_FAILED = 1
EXIT_USAGE = 2
_MODULES = {
    "log": "log",
    "show": "show",
    "diff": "diff",
    "undo": "undo",
    "rewind": "undo",
    "redo": "undo",
    "recover": "recover",
    "status": "status",
    "verify": "verify",
    "prune": "prune",
    "purge": "purge",
    "config": "config",
    "doctor": "doctor",
}


def main(words: list[str] | None = None) -> int:
    """Do what the command line says; gives the exit code: 0, 1 failed, 2 usage, and what undo says."""
    given = sys.argv[1:] if words is None else words
    verb = next((word for word in given if not word.startswith("-")), None)
    parser = argparse.ArgumentParser(prog="ckpt", description=card_verbs.ABOUT, epilog=card_verbs.EPILOG)
    parser.add_argument("--version", action="version", version=card.version() if "--version" in given else "")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    for name, module in _MODULES.items():
        child = verbs.add_parser(name, help=card_verbs.VERBS[name], description=card_verbs.VERBS[name])
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
        card.warn(f"ckpt: {card.fault(fault)}")
        if getattr(options, "json", False):
            from ckpt_run.shim.cli.output import print_fault

            print_fault(fault)
        return int(getattr(options, "exit_of_faults", {}).get(fault.fault, EXIT_FAILED))
    except BrokenPipeError:
        # Whoever read our output has seen enough; nothing may be written to it while Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except KeyboardInterrupt:
        return 130
