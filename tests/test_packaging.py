"""What tests, lint and demo use is locked for each Python that pyproject.toml names; what users install has ranges."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
REQUIREMENTS = sum(PROJECT["optional-dependencies"].values(), PROJECT["dependencies"])


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("python", PYTHONS)
def test_every_requirement_is_locked_for_every_python(python: str) -> None:
    lines = (ROOT / ".ci" / "locks" / f"python{python}.txt").read_text().splitlines()
    locked = {}
    for line in lines:
        match = re.fullmatch(r"([\w.-]+)==([\w.+!]+)", line)
        assert match, f"{line!r} is no exact version, or says where to get it"
        locked[normal(match[1])] = match[2]
    needed = {normal(re.split(r"[<>=!~\[; ]", each)[0]) for each in REQUIREMENTS} | {"pip", "setuptools"}
    assert needed <= locked.keys(), f"run `make lock PYTHON=python{python}`: {sorted(needed - locked.keys())}"


def test_only_what_is_named_is_locked() -> None:
    names = sorted(path.name for path in (ROOT / ".ci" / "locks").iterdir())
    assert names == [f"python{python}.txt" for python in PYTHONS]


def test_users_get_ranges() -> None:
    # PySyncObj is the exception: its private members are used (tests/raftlog/raft/test_pysyncobj_pin.py).
    assert [each for each in REQUIREMENTS if ">=" not in each] == ["pysyncobj==0.3.17"]
