"""Counts of instructions by function, compared with PyTorch's containers on the same counts."""

from __future__ import annotations

import pytest

from flambeau.utils import benchmark

DATA = ((100, "a.cpp:foo"), (50, "b.cpp:bar"), (-3, "Objects/dictobject.c:lookdict_unicode_nodummy"), (7, "x" * 120), (60, "b.cpp:bar"))
MANY = tuple((i * 1000, f"function{i}") for i in range(40))
PATHS = (
    (1000, "/build/here/Foo.cpp:foo(int) [/lib/library.so]"),
    (50, "/usr/src/python/Objects/dictobject.c:lookdict"), (5, "???:0x12 [/x/y.so]"),
)  # fmt: skip


def counts(torch, data, inclusive=False, **settings):
    util = torch.utils.benchmark
    if util is benchmark:
        return util.FunctionCounts(data, inclusive, **settings)
    from torch.utils.benchmark.utils.valgrind_wrapper.timer_interface import FunctionCount

    return util.FunctionCounts(tuple(FunctionCount(*pair) for pair in data), inclusive, **settings)


def shown(value):
    """The text of a container without its address."""
    return repr(value).splitlines()[1:]


@pytest.fixture
def both(oracle):
    import torch.utils.benchmark  # noqa: F401  # PyTorch loads it on request

    import flambeau as fb

    return fb, oracle


def test_counts_are_combined_and_shown_as_by_pytorch(both):
    def told(torch):
        c = counts(torch, DATA, True)
        return [
            shown(x)
            for x in (
                c, c[1:], c + c, c - c.filter(lambda n: "foo" in n), c.filter(lambda n: "a" in n), c.transform(lambda n: n[:3]),
                c.denoise(), counts(torch, DATA), counts(torch, MANY), counts(torch, MANY, truncate_rows=False),
                counts(torch, DATA, _linewidth=40), counts(torch, ()),
            )
        ] + [len(c), c.sum()]  # fmt: skip

    assert told(both[0]) == told(both[1])


def test_indexing_selects_rows():
    c = benchmark.FunctionCounts(DATA, False)

    assert c[0] == (100, "a.cpp:foo")
    assert [count for count, _ in c[:2]] == [100, 50]
    assert [count for count, _ in c * 2] == [220, 200, 14, -6]


def test_inclusive_and_exclusive_counts_do_not_mix():
    with pytest.raises(AssertionError, match="Cannot merge inclusive and exclusive"):
        benchmark.FunctionCounts(DATA, True) + benchmark.FunctionCounts(DATA, False)


def test_statistics_tell_what_those_of_pytorch_tell(both):
    def told(torch):
        util = torch.utils.benchmark
        task = util.TaskSpec(stmt="x + 1", setup="x = 1") if util is benchmark else util.utils.common.TaskSpec(stmt="x + 1", setup="x = 1")
        stats = util.CallgrindStats(
            task, 10, True, counts(torch, PATHS[:1], True), counts(torch, PATHS[1:]), counts(torch, PATHS, True), counts(torch, PATHS), None
        )
        standard = stats.as_standardized()
        return [
            shown(x)
            for x in (
                stats, stats.stats(), stats.stats(inclusive=True), standard.stats(), stats.delta(stats), stats.delta(standard),
            )
        ] + [stats.counts(), stats.counts(denoise=True)]

    assert told(both[0]) == told(both[1])
