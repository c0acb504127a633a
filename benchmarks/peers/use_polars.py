"""The joins of :mod:`benchmarks.features` by polars' ``join_asof``.

It runs in polars' environment: polars and the standard library.
"""

import json
import sys

import polars as pl

from benchmarks.peers.features_harness import usage_of_process

_TTL = 7 * 86_400_000_000


def main() -> None:
    """Join as ``sys.argv[1]`` says, as JSON; print what it took."""
    options = json.loads(sys.argv[1])
    root = options["root"]
    name = options["name"]
    labels = pl.read_parquet(f"{root}/labels.parquet").with_row_index("row").sort("when")
    result = labels
    for view in range(options["views"]):
        rows = pl.scan_parquet(f"{root}/features/{name}{view}/1/*/*.parquet", hive_partitioning=False).sort(
            "_known", "_event"
        )
        if name == "known":  # those that set a new latest event, of which the last at each moment counts
            rows = rows.filter(pl.col("_event") == pl.col("_event").cum_max().over("user")).unique(
                ["user", "_known"], keep="last", maintain_order=True
            )
        joined = labels.join_asof(
            rows.collect(), left_on="when", right_on="_known", by="user", strategy="backward"
        )
        begin = "_event"
        if name == "event":
            begin = "_known"
        live = (pl.col("when") - pl.col(begin)) <= pl.duration(microseconds=_TTL)
        features = [
            pl.when(live).then(pl.col(feature)).alias(f"{feature}{view}") for feature in ("a", "b", "c")
        ]
        result = result.hstack(joined.select(features))
    result.sort("row").drop("row").write_ipc(f"{root}/{name}-theirs.arrow")
    print(json.dumps({**usage_of_process(), "version": pl.__version__}), flush=True)


if __name__ == "__main__":
    main()
