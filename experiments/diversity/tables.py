"""Tables of the study; there is none of what was not measured."""

from collections.abc import Iterator

from experiments.diversity.exchange import Judged
from experiments.diversity.results import Orders, Results
from experiments.harness.tables import Cell, Row, Table

MEAN = "mean ± deviation over the networks"


def all_tables(results: Results) -> list[Table]:
    """Pairs first."""
    tables = [_pair_table(results), *_exchange_tables(results.tested)]
    return [*tables, _order_table(results.orders)] if results.orders else tables


def outside_name(results: Results, name: str) -> str:
    """`out of distribution`, and which if there are several."""
    return "out of distribution" + (f": {name}" if len(results.outside) > 1 else "")


def _pair_table(results: Results) -> Table:
    values = {"test images": (results.inside, 4)}
    values |= {outside_name(results, name): (each, 4) for name, each in results.outside.items()}
    return Table.summary("Mutual information of pairs of networks, nats", values, "mean", "least", "most")


def _exchange_tables(tested: dict[str, Judged]) -> Iterator[Table]:
    """One table for a network of one layer; else one of layers for every set, and one of all layers."""
    if not any(each.pooled for each in tested.values()):
        tests = [test for each in tested.values() for test in each.layers.values()]
        rows = [
            Row.of("chi-square", (test.statistic for test in tests), 1),
            Row.of("p-value", (test.p_value for test in tests), 4),
            Row.of("samples", (test.counts.sum() for test in tests), 0),
        ]
        yield Table("Exchangeability of the units of the first hidden layer", tuple(tested), rows)
        return
    for name, each in tested.items():
        if each.by_layer:
            yield _layer_table(name, each)
    pooled = [each.pooled for each in tested.values() if each.pooled]
    rows = [
        Row.of("chi-square", (each.statistic for each in pooled), 1),
        Row.of("p-value", (each.p_value for each in pooled), 4),
        Row.of("samples", (each.num_samples for each in tested.values()), 0),
        Row.of("layers", (len(each.layers) for each in tested.values()), 0),
        Row.of("counted over expected, least of all parts", (each.excess.min() for each in pooled), 2),
        Row.of("counted over expected, most of all parts", (each.excess.max() for each in pooled), 2),
    ]
    title = "Exchangeability of units over all layers: position of the unit with the largest weight"
    yield Table(title, tuple(tested), rows)


def _layer_table(name: str, tested: Judged) -> Table:
    columns = ("samples per unit", "chi-square", "p-value", "p-value, Holm")
    rows = []
    for layer, test in tested.by_layer.items():
        units = len(test.counts)
        values = (tested.num_samples / units, test.statistic, test.p_value, tested.holm[layer])
        rows.append(Row.of(f"{layer}, {units} units", values, 3))
    return Table(f"Exchangeability of the units of every layer: {name}", columns, rows)


def _order_table(orders: Orders) -> Table:
    """A row for every layer."""
    several = len(orders.taus) > 1
    rows = tuple(
        Row(name if several else MEAN, [Cell(float(each.mean()), float(each.std())) for each in taus.T], 2)
        for name, taus in orders.taus.items()
    )
    title = "Kendall's τ between successive orders of units" + (f", {MEAN}" if several else "")
    return Table(title, tuple(f"epoch {epoch}" for epoch in orders.epochs), rows)
