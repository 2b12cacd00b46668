"""The page as text: what it carries, that nothing in it can break out, and that its size stays linear."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.linearizability.checker.history import INFO, OK, History, Operation, TimeUnit
from raftlog.linearizability.checker.models.register import Register
from raftlog.linearizability.checker.page import Finding, Report, render_html, render_report, report_of, write_html
from raftlog.linearizability.checker.page.encode import VALUE_LIMIT
from raftlog.linearizability.checker.verdict import PartVerdict, Status, Valid
from tests.effort import examples
from tests.linearizability.checker.page import samples
from tests.linearizability.checker.page.reading import PageReader, column_of, data_of


def page_of(operations: list[Operation]) -> str:
    history = History.of(operations)
    part = PartVerdict(None, Status.VALID, history.by_call(), "search")
    return render_html(Valid(Register(), (part,), len(history)), history)


def test_every_operation_comes_back_with_its_times_values_and_client() -> None:
    verdict, history = samples.stale_read()
    data = data_of(render_html(verdict, history))
    calls = list(accumulate(column_of(data, "call")))
    base = int(data["base"])
    for place, op in enumerate(history.by_call()):
        assert base + calls[place] == op.call + history.by_call()[0].call - base
        duration = column_of(data, "duration")[place]
        assert (duration == -1) if op.returned is None else (op.call + duration == op.returned)
        assert data["processes"][column_of(data, "process")[place]] == f"process {op.process}"
        assert data["functions"][column_of(data, "function")[place]] == op.function
        assert ["ok", "fail", "info"][column_of(data, "outcome")[place]] == op.outcome.value
        assert data["texts"][column_of(data, "text")[place]] == verdict.describe_operation(op)
    assert data["count"] == len(history) == 9


def test_the_witness_comes_with_its_states_orders_and_refusals() -> None:
    verdict, history = samples.stale_read()
    data = data_of(render_html(verdict, history))
    witness = data["parts"][data["open"]]["witness"]
    by_call = history.by_call()
    assert [by_call[number] for number in witness["operations"]] == list(verdict.witness.operations)
    assert by_call[witness["refused"]] is verdict.witness.refused
    assert data["words"] == verdict.witness.words
    [possible] = witness["possible"]
    assert data["texts"][possible["state"]] == "holds 3"
    states = [data["texts"][state] for state in possible["order"]["states"]]
    assert states == ["holds 1", "holds 2", "holds 3", "holds 3"]
    [[refused, reason]] = possible["refusals"]
    assert by_call[refused] is verdict.witness.refused
    assert data["texts"][reason] == "answered 2, but the register holds 3"


@given(
    st.lists(
        st.tuples(
            st.one_of(st.integers(0, 3), st.text(max_size=4)),
            st.integers(-(2**62), 2**62),
            st.one_of(st.none(), st.integers(0, 2**62)),
            st.one_of(st.none(), st.integers(), st.text(), st.lists(st.text(max_size=3), max_size=2)),
        ),
        max_size=12,
    )
)
@settings(max_examples=examples(60))
def test_any_history_survives_the_way_through_the_page(
    rows: list[tuple[int | str, int, int | None, object]],
) -> None:
    operations = []
    for process, call, took, value in rows:
        outcome, returned = (INFO, None) if took is None else (OK, call + took)
        operations.append(Operation(process, "write", value, None, None, call, returned, outcome))
    page = page_of(operations)
    data = data_of(page)
    assert page.isascii()
    base = int(data["base"])
    by_call = sorted(operations, key=lambda op: op.index)
    assert [base + call for call in accumulate(column_of(data, "call"))] == [op.call for op in by_call]
    durations = [-1 if op.returned is None else op.returned - op.call for op in by_call]
    assert column_of(data, "duration") == durations
    names = [data["processes"][number] for number in column_of(data, "process")]
    assert names == [op.process if isinstance(op.process, str) else f"process {op.process}" for op in by_call]


def test_no_text_of_a_history_becomes_markup() -> None:
    verdict, history = samples.hostile()
    calm, calm_history = samples.stale_read()
    page = PageReader(render_html(verdict, history))
    harmless = PageReader(render_html(calm, calm_history))
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in harmless.elements]
    for _, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "src" or name == "href"]


def test_the_data_block_holds_no_character_that_could_end_it() -> None:
    verdict, history = samples.hostile()
    page = render_html(verdict, history)
    block = page.partition('id="data">')[2].partition("</script>")[0]
    assert not set("<>&") & set(block)
    assert samples.HOSTILE.replace("\ud800", "") in "".join(data_of(page)["texts"]).replace("\ud800", "")


def test_the_page_allows_its_own_script_and_style_and_nothing_else() -> None:
    page = render_html(*samples.stale_read())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    style = page.partition("<style>")[2].partition("</style>")[0]
    for kind, text in (("script", script), ("style", style)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy.group(1)
    assert "default-src 'none'" in policy.group(1)
    assert not re.search(r"https?://|//[a-z]+\.", script + style), "nothing is fetched"


def test_the_size_grows_with_the_operations_and_no_faster() -> None:
    sizes = [len(render_html(*samples.register_run(count))) for count in (2_000, 4_000, 8_000)]
    first, second = sizes[1] - sizes[0], sizes[2] - sizes[1]
    assert 1.8 < second / first < 2.2
    assert second / 4_000 < 60, "bytes an operation"


def test_a_huge_value_is_cut_and_its_length_told() -> None:
    page = page_of([samples.operation(0, "write", "v" * 1_000_000, None, (0, 1))])
    assert len(page) < len(page_of([])) + 3 * VALUE_LIMIT
    assert any("1,000,002 characters in all" in text for text in data_of(page)["texts"])


def test_values_without_a_json_form_are_still_shown() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    values: list[object] = [{(1, 2): 3}, frozenset({1}), b"bytes", float("nan"), object]
    operations = [samples.operation(0, "write", value, None, (time, time)) for time, value in enumerate(values)]
    report = Report(status=Status.VALID, words="", history=History.of(operations))
    texts = data_of(render_report(report))["texts"]
    assert "{(1, 2): 3}" in texts and any("b'bytes'" in text for text in texts)
    deepest = Report(
        status=Status.VALID,
        words="",
        history=History.of([samples.operation(0, "write", deep, None, (0, 1))]),
        describe_operation=lambda operation: "write",
    )
    assert any("nested too deeply" in text for text in data_of(render_report(deepest))["texts"])
    while deep:  # level by level: freeing it at once would go as deep
        deep = deep.pop()  # type: ignore[assignment]


def test_an_operation_of_another_history_is_refused() -> None:
    verdict, history = samples.stale_read()
    stranger = samples.operation(0, "read", None, 1, (0, 1))
    with pytest.raises(ValueError, match="not in its history"):
        render_html(verdict, history, findings=[Finding("strange", "", (stranger,))])
    with pytest.raises(ValueError, match="not in its history"):
        render_html(verdict, history, findings=[Finding("strange", "", (9,))])


def test_a_finding_may_name_its_operations_by_number() -> None:
    verdict, history = samples.stale_read()
    by_call = history.by_call()
    data = data_of(render_html(verdict, history, findings=[Finding("both ways", "", (3, by_call[1]))]))
    assert data["findings"][0]["operations"] == [3, 1]
    assert "both ways" in data["report"]


def test_an_operation_may_belong_to_several_partitions() -> None:
    data = data_of(render_report(samples.findings()))
    names = [part["name"] for part in data["parts"]]
    sets = [[names[part] for part in data["keySets"][number]] for number in column_of(data, "keys")]
    assert sets == [["orders-0"], ["orders-0", "orders-1"], ["orders-0"], ["orders-1"], ["orders-0"]]
    assert [finding["severity"] for finding in data["findings"]] == ["error", "note"]


def test_without_a_history_the_operations_of_the_parts_are_shown() -> None:
    verdict, history = samples.stale_read()
    assert data_of(render_html(verdict))["count"] == len(history)


def test_an_empty_history_has_a_page() -> None:
    data = data_of(page_of([]))
    assert data["count"] == 0 and "no operations" in data["words"]


def test_steps_stay_steps() -> None:
    operations = [Operation(0, "write", 1, None, None, 3, 5, OK)]
    history = History.of(operations, time_unit=TimeUnit.STEPS)
    report = report_of(Valid(Register(), (PartVerdict(None, Status.VALID, operations, "search"),), 1), history)
    assert data_of(render_report(report))["unit"] == "step"


def test_numbered_clients_come_before_named_ones_each_in_order() -> None:
    data = data_of(page_of([samples.operation(name, "read", None, None, (0, 1)) for name in ("b", 10, "a", 9)]))
    assert data["processes"] == ["process 9", "process 10", "a", "b"]


def test_writing_to_a_stream_gives_the_same_page() -> None:
    stream = io.StringIO()
    write_html(stream, *samples.stale_read(), title="<b>mine</b>")
    assert stream.getvalue() == render_html(*samples.stale_read(), title="<b>mine</b>")
    assert "<title>invalid: &lt;b&gt;mine&lt;/b&gt;</title>" in stream.getvalue()


def test_many_possible_states_are_counted_but_not_all_told() -> None:
    verdict, history = samples.stale_read()
    many = samples.with_possible(verdict, 1_000)
    data = data_of(render_html(many, history))
    witness = data["parts"][0]["witness"]
    assert witness["states"] == 1_000 and len(witness["possible"]) == 20
