"""What it costs to have raftlog: the plugin that every run of pytest loads, and the client; each in fresh interpreters.

    python -m benchmarks.imports [--rounds 20]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from statistics import median

# What is timed, and what the interpreter has imported before: pytest is there when it loads its plugins.
WORKS = (
    ("raftlog.testing.pytest_plugin", "pytest", 10.0),
    ("raftlog.client", "sys", 60.0),
)
PROGRAM = """
import time, {before}
began = time.perf_counter()
import {module}
print((time.perf_counter() - began) * 1000)
"""


def import_ms(module: str, before: str) -> float:
    """Milliseconds of one import."""
    program = PROGRAM.format(module=module, before=before)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    print(f"load average {os.getloadavg()[0]:.1f}")
    is_over = False
    for module, before, bar in WORKS:
        import_ms(module, before)  # writes byte code, and brings the files into memory
        taken = sorted(import_ms(module, before) for _ in range(rounds))
        is_over |= median(taken) >= bar
        spread = f"{taken[0]:.1f} to {taken[-1]:.1f}, {rounds} rounds"
        print(f"import {module}: {median(taken):.1f} ms (median; {spread}), bar {bar:g} ms")
    return is_over


if __name__ == "__main__":
    raise SystemExit(main())
