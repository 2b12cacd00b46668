"""Whether there is a Java that Spark runs on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from raftlog.cli.failure import CommandFailed

JAVA_MIN = 17


def needs_java() -> int:
    """The version of the Java that Spark will start. Raises CommandFailed where it is missing or too old."""
    hint = "apt-get install openjdk-17-jre-headless, or set JAVA_HOME to where it is"
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        raise CommandFailed(f"Spark needs Java {JAVA_MIN}, and there is no java on the path", hint)
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise CommandFailed(f"Spark needs Java {JAVA_MIN}, and {java} does not run: {error}", hint) from error
    version = version_of(told)
    if version < JAVA_MIN:
        raise CommandFailed(f"Spark needs Java {JAVA_MIN}, and {java} is Java {version}", hint)
    return version


def version_of(told: str) -> int:
    """From what `java -version` says; 0 for what nobody understands. Until 8 it was told as 1.8."""
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(found[1]) if found else 0
