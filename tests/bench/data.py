"""The tables of `make bench`: page views (21 mixed columns) and metrics (5 narrow ones).

Both follow from the number of a row alone and have the skew of real data: few values are frequent,
most are rare.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from catalog.clickhouse.connection import Connection

__all__ = ["DATASETS", "PARTITIONS", "Dataset", "fill"]

PARTITIONS: Final = (1, 2)
_DAY: Final = "toDate('2024-01-01')"
_WORDS: Final = (
    "['the','new','best','sale','online','shop','price','cheap','review','house','garden','car',"
    "'bike','phone','camera','laptop','music','video','photo','game','travel','hotel','ticket',"
    "'paris','london','berlin','madrid','school','kids','tools','repair','service','winter',"
    "'summer','red','green','blue','news','weather','free']"
)


@dataclass(frozen=True, slots=True)
class Dataset:
    """A table: its columns (name, type, value as SQL over the row's number `n`) and sorting key.

    `rows` is for each row that was asked for: narrow rows are many. `gated` tells whether the
    goals of its ratios are to be met, or only reported.
    """

    name: str
    columns: tuple[tuple[str, str, str], ...]
    key: tuple[str, ...]
    rows: int
    gated: bool

    @property
    def table(self) -> str:
        """The name in ClickHouse."""
        return f"bench.{self.name}"


def _hash(number: int) -> str:
    """Return a hash of the row, another one for every number."""
    return f"cityHash64(n, {number})"


def _share(number: int) -> str:
    """Return a number from 0 to below 1."""
    return f"({_hash(number)} % 1000000 / 1000000)"


def _word(number: int) -> str:
    """Return one of forty words, the first ones more often."""
    return f"{_WORDS}[1 + toUInt32(40 * pow({_share(number)}, 2))]"


def _one_of(values: str, number: int) -> str:
    return f"{values}[1 + {_hash(number)} % length({values})]"


_COUNTER: Final = f"toUInt32(20000 * pow({_share(1)}, 4))"
_QUERY: Final = (
    f"concat('?utm_source=', {_word(16)}, '&id=', toString({_hash(17)} % 1000000),"
    f" '&ref=', hex({_hash(18)} % 65536))"
)
_URL: Final = (
    f"concat('https://www.site-', toString({_COUNTER} % 997), '.example.com/', {_word(11)}, '/',"
    f" {_word(12)}, '/', {_word(13)}, '-', toString({_hash(14)} % 20000),"
    f" if({_hash(15)} % 3 = 0, {_QUERY}, ''))"
)
_REFERER: Final = (
    f"if({_hash(20)} % 5 < 2, '', concat('https://', {_word(21)}, '.search.example.org/q/',"
    f" {_word(22)}, '+', {_word(23)}, '/', toString({_hash(24)} % 300)))"
)
_TITLE: Final = (
    f"concat({_word(31)}, ' ', {_word(32)}, ' ', {_word(33)}, ' ', {_word(34)}, ' - site ',"
    f" toString({_COUNTER} % 997))"
)
_PHRASE: Final = (
    f"if({_hash(41)} % 10 < 8, '', concat({_word(42)}, ' ', {_word(43)}, ' ', {_word(44)}))"
)

_HITS: Final = Dataset(
    name="hits",
    columns=(
        ("p", "UInt8", "{partition}"),
        ("counter_id", "UInt32", _COUNTER),
        ("event_date", "Date", f"{_DAY} + {_hash(2)} % 31"),
        ("user_id", "UInt64", f"intHash64(toUInt64(3000000 * pow({_share(3)}, 3)))"),
        ("event_time", "DateTime", f"toDateTime({_DAY} + {_hash(2)} % 31) + {_hash(4)} % 86400"),
        ("watch_id", "UInt64", _hash(5)),
        ("url", "String", _URL),
        ("referer", "String", _REFERER),
        ("title", "String", _TITLE),
        ("search_phrase", "String", _PHRASE),
        ("os", "LowCardinality(String)",
         _one_of("['Windows','Android','iOS','Linux','macOS','Other']", 51)),
        ("browser", "LowCardinality(String)", f"concat('Browser ', toString({_hash(52)} % 40))"),
        ("country", "LowCardinality(String)",
         f"concat('C', leftPad(toString({_hash(53)} % 150), 3, '0'))"),
        ("region_id", "UInt32", f"{_hash(54)} % 5000"),
        ("width", "UInt16", _one_of("[360,390,412,768,1280,1366,1440,1920,2560]", 55)),
        ("height", "UInt16", _one_of("[640,844,915,1024,720,768,900,1080,1440]", 55)),
        ("is_mobile", "Bool", f"{_hash(51)} % 6 IN (1, 2)"),
        ("duration", "Float64", f"round(-60 * log(1.000001 - {_share(56)}), 3)"),
        ("price", "Float64",
         f"if({_hash(57)} % 20 = 0, round({_hash(58)} % 100000 / 100, 2), 0.)"),
        ("age", "Nullable(Int32)", f"if({_hash(59)} % 4 = 0, NULL, 18 + {_hash(60)} % 60)"),
        ("tags", "Array(String)",
         f"arrayMap(i -> {_WORDS}[1 + cityHash64(n, 70, i) % 40], range({_hash(61)} % 4))"),
    ),
    key=("counter_id", "event_date", "user_id"),
    rows=1,
    gated=True,
)  # fmt: skip

# Forty metrics of 250 hosts; every ten seconds a point, with a jitter.
_METRICS: Final = Dataset(
    name="metrics",
    columns=(
        ("p", "UInt8", "{partition}"),
        ("metric", "LowCardinality(String)",
         "concat('metric.', leftPad(toString(n % 40), 2, '0'))"),
        ("host", "UInt32", "intDiv(n, 40) % 250"),
        ("ts", "DateTime",
         f"toDateTime({_DAY}) + intDiv(n, 10000) * 10 + {_hash(2)} % 3"),
        ("value", "Float64",
         f"round(50 + 20 * sin(intDiv(n, 10000) / 360) + {_hash(1)} % 1000 / 100, 2)"),
    ),
    key=("metric", "host", "ts"),
    rows=5,
    gated=False,
)  # fmt: skip

DATASETS: Final = (_HITS, _METRICS)


def fill(clickhouse: Connection, dataset: Dataset, rows: int) -> None:
    """Make a table of two partitions of `rows` rows each, one part each.

    Raises:
        SourceError: ClickHouse refused a statement.
    """
    columns = ", ".join(f"{name} {kind}" for name, kind, _ in dataset.columns)
    clickhouse.command("CREATE DATABASE IF NOT EXISTS bench")
    clickhouse.command(
        f"CREATE TABLE {dataset.table} ({columns}) ENGINE = MergeTree PARTITION BY p"
        f" ORDER BY ({', '.join(dataset.key)})"
    )
    for index, partition in enumerate(PARTITIONS):
        values = ", ".join(
            f"{sql.replace('{partition}', str(partition))} AS {name}_"
            for name, _, sql in dataset.columns
        )
        clickhouse.command(
            f"INSERT INTO {dataset.table} SELECT {values} FROM (SELECT number AS n FROM"
            f" numbers({index * rows}, {rows})) SETTINGS max_threads = 2, max_insert_threads = 1,"
            " min_insert_block_size_rows = 1000000, min_insert_block_size_bytes = 0"
        )
        clickhouse.command(f"OPTIMIZE TABLE {dataset.table} PARTITION {partition} FINAL")
