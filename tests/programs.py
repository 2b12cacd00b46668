"""Python programs in processes of their own."""

from __future__ import annotations

import subprocess
import sys


def printed_by(script: str) -> str:
    """What it prints; it must end well."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()
