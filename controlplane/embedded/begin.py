"""Runs a module of the plane as a program, sooner: `python -m controlplane.embedded.begin MODULE ARGUMENT…`.

Imports make some hundred thousand objects that live as long as the process. Looking for garbage among them meanwhile
costs a third of the time that a start takes, and each full pass later would look at them again.
"""

import gc
import importlib
import runpy
import sys


def main() -> None:
    """Import it with the collector off, then run it as `python -m` does."""
    module = sys.argv[1]
    gc.disable()
    importlib.import_module(module)
    gc.freeze()
    gc.enable()
    del sys.argv[0]
    del sys.modules[module]  # its own body runs once more, as `__main__`; all that it imports is there already
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
