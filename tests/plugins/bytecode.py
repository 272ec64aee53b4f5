"""Lets a test run keep what Python compiles, whatever the machine says of it.

Tests start hundreds of processes of ours. Where PYTHONDONTWRITEBYTECODE is set, as containers like to have it, each of
them and each worker of the run would compile all sources again. Loaded by name from pyproject.toml, before any test.
"""

import os
import sys

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
