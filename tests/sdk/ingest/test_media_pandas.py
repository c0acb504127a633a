"""Tables from pandas, where it is installed; the SDK does not need it."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from halving.errors import InvalidInput
from halving.ingest.media import Table

pd = pytest.importorskip("pandas")


def test_a_frame_keeps_its_types_and_an_index_that_says_something() -> None:
    frame = pd.DataFrame({"x": [1, 2], "y": [0.5, None]}, index=pd.Index(["a", "b"], name="sample"))
    read = pq.read_table(io.BytesIO(Table(frame).encode()))
    assert read.to_pylist() == [{"x": 1, "y": 0.5, "sample": "a"}, {"x": 2, "y": None, "sample": "b"}]
    assert Table(pd.DataFrame({"x": [1, 2]})).encode() == Table(pa.table({"x": [1, 2]})).encode()


def test_a_frame_that_mixes_kinds_in_a_column_is_refused() -> None:
    with pytest.raises(
        InvalidInput, match="table data of type DataFrame is not accepted: Arrow does not hold it"
    ):
        Table(pd.DataFrame({"a": [1, "x"]}))
