"""100,000 stored spans to a DataFrame.

The spans of a real study (chain, ``reference × retry(1)``) are read from its file, decompressed,
parsed and put into columns, one span a row. Importing pandas is not counted. ``study.spans`` adds
arm, scenario, rate and seed to each row.
"""

from __future__ import annotations

import tempfile

from measure import Row, clock, found_in, interleaved, medians, report
from throughput import study

joined, spans_frame = (found_in(name, "study.frames") for name in ("joined", "spans_frame"))
Store = found_in("Store", "trace.store")

SPANS = 100_000
REPETITIONS = 5
SEEDS = 150


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as out:
        made = study(out, controls=False, seeds=SEEDS)
        runs = made.run(processes=2, progress=False)
        with Store(out, read_only=True) as store:
            total = len(spans_frame(store))
            assert total >= SPANS, total

            def spans() -> float:
                started = clock()
                frame = spans_frame(store)
                assert len(frame) == total
                return (clock() - started) * SPANS / total

            def both() -> float:
                started = clock()
                frame = joined(spans_frame(store), runs)
                assert len(frame) == total
                return (clock() - started) * SPANS / total

            found = medians(interleaved({"spans": spans, "both": both}, REPETITIONS))
    return [
        Row(f"{SPANS:,} stored spans to pandas", found["spans"], "s", 1.0, "limit", "≤ 1 s",
            found["spans"] <= 1),
        Row("... with arm, scenario, rate and seed", found["both"], "s", 1.0, "limit", "≤ 1 s",
            found["both"] <= 1),
    ]  # fmt: skip


if __name__ == "__main__":
    report(rows())
