"""Links between brokers are cut, without a word to anybody, and healed: see benchmarks/cut_links.py."""

from __future__ import annotations

import pytest

from benchmarks.cut_links import CUTS, run
from benchmarks.namespaces import can_be_made

pytestmark = pytest.mark.slow

CUT_SECONDS = 15.0
STALL_SECONDS_MAX = 5.0
"""TCP by itself is silent for another ten seconds after such a cut."""


@pytest.mark.skipif(not can_be_made(), reason="network namespaces need Linux and root")
@pytest.mark.parametrize("name", sorted(CUTS.keys() - {"all"}))
def test_producers_go_on_while_a_link_is_cut_and_at_once_when_it_is_healed(name: str) -> None:
    during, after = run(CUTS[name][1], CUT_SECONDS)
    assert during.worst < CUT_SECONDS / 2
    assert after.worst < STALL_SECONDS_MAX


@pytest.mark.skipif(not can_be_made(), reason="network namespaces need Linux and root")
def test_a_producer_that_was_cut_off_from_its_leader_as_well_goes_on_soon_after_the_cut() -> None:
    _, after = run(CUTS["all"][1], CUT_SECONDS)
    assert after.worst < STALL_SECONDS_MAX
