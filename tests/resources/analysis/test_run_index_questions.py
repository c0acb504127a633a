"""Questions to the index of runs: groups, columns, and what is asked too much."""

import math
import time

import numpy as np
import pytest
from sqlalchemy import insert, text, update

from halving import InvalidInput
from halving.query.run_filter import InvalidFilter
from halving.query.run_filter_parser import parse_fields, parse_filter
from halving.store.json_files import to_json
from halving.text import local_time
from resources.analysis.run_index import Refresher, leading, select, select_names, select_page
from resources.analysis.run_index.columns import select_columns
from resources.analysis.run_index.groups import select_groups
from resources.analysis.run_index.reading import reading
from resources.backend import Backend
from resources.catalog import Catalog, RunNameRow, RunRow
from tests.indexed_runs import add_record, add_run


def test_groups_have_the_mean_and_deviation_that_numpy_has(either_backend: Backend) -> None:
    store = either_backend.store
    catalog = either_backend.catalog
    source = np.random.default_rng(0)
    values: dict[str, list[float]] = {"adam": [], "sgd": []}
    for number in range(12):
        name = ("adam", "sgd")[number % 2]
        loss = 1e6 + float(source.normal())
        values[name].append(loss)
        add_record(store, f"r{number:02d}", {"optimizer": name, "fold": number}, loss=loss)
    add_record(store, "x", {"optimizer": 1}, loss=math.inf)
    add_record(store, "y", {"optimizer": True}, loss=1e200)
    add_record(store, "z", {"optimizer": math.nan}, loss=math.nan)
    add_record(store, "zz")
    Refresher(store, catalog).refresh()
    with catalog.read() as session:
        groups = select_groups(
            session,
            parse_filter(""),
            parse_fields("params.optimizer"),
            columns=parse_fields("metrics.loss,params.nobody"),
        )
        best = select_groups(
            session, parse_filter("order by metrics.loss limit 3"), parse_fields("status,project")
        )
        nobody = select_groups(
            session,
            parse_filter("status = x"),
            parse_fields("params.nobody,started"),
            columns=parse_fields("metrics.loss"),
        )
        nothing = select_groups(session, parse_filter("status = x"), parse_fields("params.nobody"))
        rest = select_groups(
            session,
            parse_filter("params.fold > 9"),
            parse_fields("params.nobody"),
            columns=parse_fields("metrics.loss"),
        )
    for group, name in zip(groups, ("adam", "sgd"), strict=False):
        assert (group["key"], group["count"]) == ({"params.optimizer": name}, 6)
        statistics = group["values"]["metrics.loss"]
        assert statistics["mean"] == pytest.approx(np.mean(values[name]), rel=1e-12)
        assert statistics["std"] == pytest.approx(np.std(values[name], ddof=1), rel=1e-6)
    assert [group["values"] for group in groups[2:]] == [{}] * 4
    assert sorted(str(group["key"]["params.optimizer"]) for group in groups[2:]) == [
        "1.0",
        "None",
        "True",
        "nan",
    ]
    assert best == [{"key": {"status": "finished", "project": "digits"}, "count": 3, "values": {}}]
    assert nobody == nothing == []
    assert [(group["key"], group["count"]) for group in rest] == [({"params.nobody": None}, 2)]


def test_a_run_that_began_where_the_calendar_ends_keeps_no_other_from_being_listed(backend: Backend) -> None:
    store = backend.store
    catalog = backend.catalog
    add_record(store, "a")
    record = {
        "project": "digits",
        "run": "no_day",
        "params": {},
        "parent": {},
        "attempt": 1,
        "started": "0001-01-01T00:00:00+14:00",
    }
    store.create("runs/project=digits/no_day/record.json", to_json(record))
    Refresher(store, catalog).refresh()
    with catalog.read() as session:
        assert {run["run"] for run in select_page(session, parse_filter("")).runs} == {"a", "no_day"}
        assert (
            sum(group["count"] for group in select_groups(session, parse_filter(""), parse_fields("started")))
            == 2
        )
    assert local_time(record["started"]) == record["started"]


def test_columns_are_what_runs_have_with_their_types(either_backend: Backend) -> None:
    store = either_backend.store
    catalog = either_backend.catalog
    add_run(store, "a", {"lr": 0.1, "Lr_end": 1, "both": "x", "100%": 1, "Ärger": 1}, loss=[1.0])
    add_run(store, "b", {"lr": 0.1, "both": 2, "flag": False}, project="text", acc=[1.0])
    Refresher(store, catalog).refresh()
    with catalog.read() as session:
        every = select_columns(session)
        own = select_columns(session, projects=["text"])
        assert [part["name"] for part in every["params"]] == ["both", "lr", "100%", "Lr_end", "flag", "Ärger"]
        assert every["params"][0] == {"name": "both", "count": 2, "type": "mixed"}
        assert [part["name"] for part in own["params"]] == ["both", "flag", "lr"]
        assert own["metrics"] == [{"name": "acc", "count": 1, "type": "number"}]
        begun = select_columns(session, prefix="params.LR")
        assert [part["name"] for part in begun["params"]] == ["lr", "Lr_end"]
        assert begun["fields"] == begun["metrics"] == []
        assert [part["name"] for part in select_columns(session, prefix="params.ÄR")["params"]] == ["Ärger"]
        assert select_columns(session, prefix="%")["params"] == []
        assert [field["name"] for field in select_columns(session, prefix="st")["fields"]] == [
            "status",
            "started",
            "stage",
        ]
        assert len(select_columns(session, limit=1)["params"]) == 1


def test_a_question_that_takes_too_long_is_ended_and_the_next_is_answered(catalog: Catalog) -> None:
    endless = text(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000) SELECT "
        "count(*) FROM n"
    )
    with pytest.raises(InvalidInput, match=r"take longer than 0\.05 s"), reading(catalog, 0.05) as session:
        session.execute(endless)
    with reading(catalog, 0.05) as session:
        assert select_page(session, parse_filter("")).total == 0
    with catalog.read() as session:
        time.sleep(0.06)
        assert session.scalar(text("SELECT count(*) FROM runs")) == 0


def test_more_names_than_a_database_joins_are_refused_with_their_place(catalog: Catalog) -> None:
    with catalog.write() as session:
        session.execute(
            insert(RunNameRow), [{"kind": "params", "name": f"p{number}"} for number in range(70)]
        )
    condition = " and ".join(f"params.p{number} = 1" for number in range(70))
    with (
        catalog.read() as session,
        pytest.raises(
            InvalidFilter, match=r"params\.p50 is not accepted: the catalog is asked for at most 50"
        ) as raised,
    ):
        select_page(session, parse_filter(condition))
    assert condition[raised.value.column - 1 :].startswith("params.p50 ")
    with catalog.read() as session:
        assert (
            select_page(
                session, parse_filter(" and ".join(f"params.p{number} = 1" for number in range(50)))
            ).total
            == 0
        )


QUESTIONS = {
    "order by metrics.loss": 8,
    "order by metrics.loss desc": 8,
    "order by max(metrics.loss) desc, params.lr": 8,
    "params.lr <= 0": 7,
    "params.lr <= 0 order by metrics.loss": 7,
    "params.lr between -5 and 0 and status = finished order by metrics.loss desc, params.lr desc": 6,
    "params.lr = 0 or params.name like 'r%' order by params.name desc": 7,
    "metrics.loss >= 1 order by tags.nobody, status, metrics.loss": 5,
    "params.lr is null order by metrics.loss": 1,
    "status = nobody order by metrics.loss": 0,
    "metrics.loss >= 0 order by metrics.loss": 6,
    "params.name like 'r%' and not params.lr > -2 order by max(metrics.loss) desc": 5,
    "params.lr <= 0 order by params.nobody, metrics.loss": 7,
    "lifecycle = deleted order by metrics.loss": 1,
}


@pytest.mark.parametrize(
    # runs that count as many: Postgres is then told how to join them; and the most that a page's are looked
    # for among
    ("many", "leads"),
    [(1, 5_000), (5_000, 5_000), (1, 3)],
)
def test_a_page_is_the_beginning_of_the_whole_order(
    either_backend: Backend, many: int, leads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leading, "_MANY", many)
    monkeypatch.setattr(select, "MAX_LEADING", leads)
    store = either_backend.store
    catalog = either_backend.catalog
    for number, loss in enumerate([1.0, 2.0, 2.0, float("nan"), 0.5, float("inf"), 2.0]):
        add_record(store, f"r{number}", {"lr": -number, "name": f"r{number % 3}"}, loss=loss)
    add_record(store, "without", {})
    for run in ("archived", "deleted"):
        add_record(store, run, {"lr": -1, "name": "r"}, loss=1.0)
    Refresher(store, catalog).refresh()
    with catalog.write() as session:
        session.execute(
            update(RunRow).where(RunRow.run.in_(["archived", "deleted"])).values(lifecycle=RunRow.run)
        )
    for question, total in QUESTIONS.items():
        with reading(catalog) as session:
            every = [run for _, run in select_names(session, parse_filter(question))]
            assert len(every) == total, question
            for limit in range(1, 9):
                for offset in (0, 2, 7):
                    page = select_page(session, parse_filter(question), limit=limit, offset=offset)
                    assert ([row["run"] for row in page.runs], page.total) == (
                        every[offset : offset + limit],
                        total,
                    ), question
            three = select_page(session, parse_filter(f"{question} limit 3"), limit=5, offset=1)
            assert ([row["run"] for row in three.runs], three.total) == (every[1:3], min(total, 3)), question


def test_a_page_is_the_beginning_of_the_whole_order_if_too_many_runs_are_equal(
    either_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leading, "_MANY", 1)
    monkeypatch.setattr(leading, "_MAX_TIES", 2)
    store = either_backend.store
    catalog = either_backend.catalog
    for number in range(6):
        add_record(store, f"r{number}", {"lr": number}, loss=float(number >= 5))
    Refresher(store, catalog).refresh()
    question = "params.lr >= 0 order by metrics.loss, params.lr desc"
    with reading(catalog) as session:
        for limit in range(1, 7):
            page = select_page(session, parse_filter(question), limit=limit)
            assert ([row["run"] for row in page.runs], page.total) == (
                ["r4", "r3", "r2", "r1", "r0", "r5"][:limit],
                6,
            )
