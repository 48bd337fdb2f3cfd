r"""What one training step communicates, as a list of calls, before anything has run.

Letters: K classes of dimension p and s bytes per number, V views, D ranks that hold the same classes, C ranks that share the classes out, \(K_l\) classes of a
rank, \(B_c\) samples that a class group scores together, U classes of a rank that occur in them.
"""

from __future__ import annotations

import math

from pairgrad.distributed.calls import Call
from pairgrad.ground.checks import integer_at_least, one_of

EXCHANGES = ("auto", "gather", "reduce")
INPUTS = ("sharded", "replicated")
HEADER = 64  # bytes: eight 64-bit integers, among them batch size and number of classes that occur
LABEL = 8  # bytes of a label beside the features of a sample
LABEL_AND_COUNT = 16  # bytes beside the sums of a class


def step_calls(
    *,
    data: int,
    classes: int,
    class_rows: int,
    dim: int,
    itemsize: int,
    local_rows: int,
    scored_rows: int,
    distinct: int,
    views: int = 1,
    exchange: str = "auto",
    inputs: str = "sharded",
    bounded: bool = True,
    static: bool = False,
) -> list[Call]:
    """The collectives of one training step, in their order; none in a group of one rank.

    Args:
        data: D, ranks that hold the same classes.
        classes: C, ranks that share the classes out.
        class_rows: classes that the rank holds.
        dim: feature dimension p.
        itemsize: s, bytes per number of the bank's dtype.
        local_rows: the largest number of samples that a rank of the class group brings.
        scored_rows: samples that the class group scores together.
        distinct: the largest number of classes of this shard that occur in the samples of a class group, over the ranks of the data group.
        views: V.
        exchange: how statistics go between ranks that hold the same classes: `"gather"`, `"reduce"`, or `"auto"`, what
            `statistics_exchange` says.
        inputs: `"sharded"`, or `"replicated"`: the ranks of a class group bring the same samples.
        bounded: the scores are known to lie within a margin of each other, as those of normalised features do.
        static: batch sizes are known to stay as they are, so that no headers are needed; every sample is then a row of the exchange.

    Examples:
        >>> for call in step_calls(data=2, classes=2, class_rows=500, dim=64, itemsize=4, local_rows=8, scored_rows=16, distinct=7):
        ...     print(call.name, call.operation, call.payload)
        classes: header all-gather 64
        classes: inputs all-gather 2112
        data: header all-gather 64
        data: statistics all-gather 1904
        classes: normaliser all-reduce 128
        classes: gradient reduce-scatter 4096
    """
    one_of("inputs", inputs, INPUTS)
    replicated = inputs == "replicated"
    features = views * dim * itemsize  # of one sample or one class
    calls: list[Call] = []
    if classes > 1:
        if not static:
            calls.append(Call("classes: header", "all-gather", HEADER, classes))
        if not replicated:
            calls.append(Call("classes: inputs", "all-gather", local_rows * (features + LABEL), classes))
    if data > 1:
        if not static:
            calls.append(Call("data: header", "all-gather", HEADER, data))
        rows = max(scored_rows if static else distinct, 1)  # a buffer has one row at least
        way = statistics_exchange(exchange, data=data, class_rows=class_rows, dim=dim, itemsize=itemsize, distinct=rows, views=views)
        if way == "gather":
            calls.append(Call("data: statistics", "all-gather", rows * (features + LABEL_AND_COUNT), data))
        else:
            calls.append(Call("data: statistics", "all-reduce", class_rows * (views * dim + 1) * itemsize, data))
    if classes > 1:
        numbers = views * scored_rows * itemsize
        if bounded:
            calls.append(Call("classes: normaliser", "all-reduce", 2 * numbers, classes))  # total and label's logit
        else:
            calls.append(Call("classes: normaliser", "all-gather", 3 * numbers, classes))  # and what they are relative to
        if replicated:
            calls.append(Call("classes: gradient", "all-reduce", scored_rows * features, classes))
        else:
            calls.append(Call("classes: gradient", "reduce-scatter", classes * local_rows * features, classes))
    return calls


def statistics_exchange(exchange: str, *, data: int, class_rows: int, dim: int, itemsize: int, distinct: int, views: int = 1) -> str:
    """`"gather"` or `"reduce"`; with `"auto"`, the one that sends less: gather where D U (V p s + 16) <= 2 K_l (V p + 1) s.

    Examples:
        >>> statistics_exchange("auto", data=8, class_rows=100_000, dim=128, itemsize=4, distinct=64)
        'gather'
        >>> statistics_exchange("auto", data=8, class_rows=100, dim=128, itemsize=4, distinct=64)
        'reduce'
    """
    if one_of("exchange", exchange, EXCHANGES) != "auto":
        return exchange
    gathered = data * distinct * (views * dim * itemsize + LABEL_AND_COUNT)
    return "gather" if gathered <= 2 * class_rows * (views * dim + 1) * itemsize else "reduce"


def expected_distinct(num_classes: int, class_rows: int, draws: int) -> int:
    r"""How many of `class_rows` classes occur in `draws` samples, on average, rounded up: \(K_l (1 - (1 - 1/K)^{B_c})\) for equally frequent classes.

    Where some classes are more frequent than others, fewer occur.

    Examples:
        >>> expected_distinct(10_000_000, 1_250_000, 1024), expected_distinct(10, 10, 1000)
        (128, 10)
    """
    integer_at_least("num_classes", num_classes, 1)
    if draws == 0:
        return 0
    met = 1.0 if num_classes == 1 else -math.expm1(draws * math.log1p(-1 / num_classes))
    return min(class_rows, draws, math.ceil(class_rows * met))
