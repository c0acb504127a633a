"""The journal: notes and what happened, in one order, page by page."""

import random
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from halving import InvalidInput
from resources.catalog import (
    AlertRow,
    AttemptRow,
    Catalog,
    IntentRow,
    ReportRow,
    RungResultRow,
    SweepControlRow,
    TrialRow,
)
from resources.journal import Cursor, read_journal, subject_of
from resources.scheduling.sweeps import extend_sweep, pause_sweep, resume_sweep, stop_sweep
from resources.tenancy.projects import rename_project
from tests.backends import add_version, snapshot_row
from tests.resources.journal.journals import (
    add_all,
    event_row,
    minutes,
    note_row,
    read_all,
    run_row,
    sweep_row,
    words,
)

DIVERGED = "Traceback (most recent call last):\n  at\nhalving.errors.Diverged: loss was NaN"
Small = Callable[..., dict[str, Any]]


def test_no_page_loses_or_repeats_an_entry_though_many_have_the_same_time(
    catalog: Catalog, small: Small
) -> None:
    source = random.Random(0)
    spec = small(name="digits")
    with catalog.write() as session:
        session.add(snapshot_row("sha256:a", created_at=minutes(1)))
        for number in range(30):
            at = source.choice([0, 1, 1, 1, 2])
            # Postgres would order these names by their letters alone.
            name = source.choice(["a-", "A.", "b", "B-", "-a_"]).strip("-") + f"-{number}"
            add_all(
                session,
                run_row(name, at, project=source.choice(["digits", "words"])),
                note_row(f"note {number}", at),
                event_row("registered", at, version="1.0.0"),
                sweep_row(
                    f"digits-{name}", spec, at, finished_at=minutes(at), status="finished", ordinal=number
                ),
            )
    everything = read_all(catalog)
    assert len(everything) == 30 * 6 + 1
    places = [entry.place for entry in everything]
    assert places == sorted(places, reverse=True)
    for limit in (1, 2, 7, 50):
        pages = read_all(catalog, limit)
        assert [entry.id for entry in pages] == [entry.id for entry in everything]
    assert len({entry.id for entry in everything}) == len(everything)


def test_pages_are_exact_for_times_between_two_microseconds(catalog: Catalog) -> None:
    """The index of runs has times as floats, and other tables have microseconds."""
    with catalog.write() as session:
        for number in range(20):
            started = minutes(0).timestamp() + number * 2.5e-7
            add_all(session, run_row(f"r{number:02d}", 0, started=started, ended=None, status="running"))
        add_all(session, note_row("at the time of the first", 0))
    entries = read_all(catalog)
    assert len(entries) == 21
    assert [entry.subject for entry in entries[:-1]] == [
        f"digits/r{number:02d}" for number in range(19, -1, -1)
    ]
    assert [entry.id for entry in read_all(catalog, 1)] == [entry.id for entry in entries]


def test_what_happened_to_a_sweep_is_listed_with_its_winner_and_who_asked(
    catalog: Catalog, small: Small
) -> None:
    spec = small(name="digits")
    with catalog.write() as session:
        add_all(
            session,
            snapshot_row("sha256:a", name="points", created_at=minutes(0)),
            IntentRow(
                id="i",
                kind="study",
                payload={"driver": "api", "spec": spec},
                actor="ci",
                created_at=minutes(1),
                status="done",
                sweep="digits-1",
            ),
            sweep_row("digits-1", spec, 2),
        )
    for control, actor in ((pause_sweep, "ada"), (pause_sweep, "bob"), (resume_sweep, "ada")):
        control(catalog, "digits-1", actor=actor)
    extend_sweep(catalog, "digits-1", 20, actor="ada")
    stop_sweep(catalog, "digits-1")
    with catalog.write() as session:
        controls = session.query(SweepControlRow).order_by(SweepControlRow.id)
        for number, row in enumerate(controls):
            row.at = minutes(3 + number)
        for number, value in enumerate((0.5, 0.9, 0.7)):
            add_all(
                session,
                TrialRow(sweep="digits-1", number=number, params={}, status="completed"),
                RungResultRow(
                    sweep="digits-1",
                    trial=number,
                    rung=0,
                    epochs=9,
                    value=value,
                    decision="complete",
                    attempt=1,
                    seconds=1.0,
                    reached_at=minutes(9),
                ),
            )
        row = catalog.sweep(session, "digits-1")
        row.status = "rejected"
        row.finished_at = minutes(20)
        add_all(
            session,
            ReportRow(
                sweep="digits-1",
                digest="d",
                html="h",
                metrics={"accuracy": 0.9, "loss": None},
                created_at=minutes(19),
            ),
        )
    entries = read_all(catalog)
    assert [(entry.actor, entry.summary) for entry in entries] == [
        (None, "rejected: a gate failed; best score 0.9 by digits-1.0001"),
        (None, "report on the winner: accuracy 0.9000, loss not finite"),
        (None, "stopped"),
        ("ada", "extended to 20 trials"),
        ("ada", "resumed"),
        ("ada", "paused"),
        (None, "created: asha, up to 20 trials, maximize score"),
        ("ci", "a sweep was asked for"),
        (None, "snapshot taken: 3 rows of m:f"),
    ]
    with catalog.read() as session:
        subject = subject_of(session, "sweep", "digits-1")
    assert [entry.id for entry in read_all(catalog, subject=subject)] == [entry.id for entry in entries[:-1]]


def test_a_promoted_winner_is_named_with_its_version_and_decisions_have_their_notes(
    catalog: Catalog, small: Small
) -> None:
    with catalog.write() as session:
        add_all(session, snapshot_row("sha256:a"))
        add_all(
            session, sweep_row("digits-1", small(name="digits"), 0, status="finished", finished_at=minutes(1))
        )
        add_all(session, TrialRow(sweep="digits-1", number=3, params={}, status="completed"))
        add_version(
            session, model="digits", version="1.0.0", sweep="digits-1", trial=3, stage="champion", updated=0
        )
        add_all(
            session,
            event_row("promoted", 2, version="1.0.0", before="staging", after="champion", note="*at last*"),
            event_row("promoted", 3, model="other", version="1.0.0"),
        )
        subject = subject_of(session, "sweep", "digits-1")
    promoted, ended, *_ = read_all(catalog, subject=subject)
    assert (promoted.subject, promoted.summary) == ("digits@1.0.0", "promoted: staging → champion")
    assert (promoted.actor, promoted.text) == ("ada", "*at last*")
    assert ended.summary == "finished; winner digits-1.0003, which is digits 1.0.0"


def test_a_projects_journal_has_only_those_trials_that_failed(catalog: Catalog, small: Small) -> None:
    with catalog.write() as session:
        add_all(
            session,
            snapshot_row("sha256:a", created_at=minutes(-9)),
            sweep_row("digits-1", small(name="digits"), -1),
            run_row("script", 0),
            run_row("hidden", 0, lifecycle="archived"),
        )
        for number, (outcome, error) in enumerate(
            [
                ("complete", None),
                (
                    "fail",
                    DIVERGED,
                ),
                ("fail", "accuracy became -1 at step 7, below its bound of 0"),
                ("retry", "the worker was killed by SIGKILL"),
                ("fail", "RuntimeError: no"),
            ]
        ):
            trial = {"sweep": "digits-1", "trial": number}
            status = "finished" if error is None else "failed"
            add_all(
                session,
                TrialRow(sweep="digits-1", number=number, params={}, status="completed"),
                AttemptRow(
                    **trial,
                    attempt=1,
                    rung=0,
                    started_at=minutes(1),
                    ended_at=minutes(2 + number),
                    outcome=outcome,
                    error=error,
                    seconds=1.0,
                    nodes=1,
                    gpus=0,
                    cpus=0,
                    spot=False,
                ),
                run_row(f"digits-1.{number:04d}", 1, **trial, status=status),
            )
        project = subject_of(session, "project", "digits")
        sweep = subject_of(session, "sweep", "digits-1")
        trial_of_sweep = subject_of(session, "run", "digits/digits-1.0001")
    expected = [
        ("failed", "digits/digits-1.0004"),
        ("crashed", "digits/digits-1.0003"),
        ("diverged", "digits/digits-1.0002"),
        ("diverged", "digits/digits-1.0001"),
        ("finished", "digits/script"),
        ("began", "digits/script"),
        ("created", "digits-1"),
    ]
    assert words(read_all(catalog, subject=project))[:-1] == expected
    assert words(read_all(catalog, projects=["digits"]))[:-1] == expected
    assert words(read_all(catalog))[:-1] == expected
    of_sweep = words(read_all(catalog, subject=sweep))
    assert of_sweep.count(("finished", "digits/digits-1.0000")) == 1
    assert sum(what == "began" for what, _ in of_sweep) == 5
    assert ("failed", "digits/digits-1.0001") not in of_sweep  # once is enough: it diverged
    assert words(read_all(catalog, subject=trial_of_sweep)) == [
        ("diverged", "digits/digits-1.0001"),
        ("began", "digits/digits-1.0001"),
    ]


def test_a_renamed_project_keeps_its_notes_and_what_happened(catalog: Catalog, small: Small) -> None:
    with catalog.write() as session:
        add_all(
            session,
            snapshot_row("sha256:a", created_at=minutes(0)),
            sweep_row("digits-1", small(name="digits"), 1),
            run_row("script", 2),
            note_row("before", 4),
        )
    rename_project(catalog, "digits", "numerals")
    with catalog.write() as session:
        add_all(session, note_row("after", 5, project="numerals", subject="numerals"))
        subject = subject_of(session, "project", "digits")
    assert subject.name == "numerals"
    for entries in (
        read_all(catalog, subject=subject),
        read_all(catalog, projects=["digits"]),
        read_all(catalog, projects=["numerals"]),
    ):
        assert [entry.text or entry.what for entry in entries] == [
            "after",
            "before",
            "finished",
            "began",
            "created",
            "snapshot",
        ]


def test_other_projects_are_left_out(catalog: Catalog, small: Small) -> None:
    with catalog.write() as session:
        session.add(snapshot_row("sha256:a"))
        for name in ("digits", "words"):
            add_all(
                session,
                sweep_row(f"{name}-1", small(name=name), 1, status="finished", finished_at=minutes(2)),
                SweepControlRow(sweep=f"{name}-1", at=minutes(2), control="pause", actor="ada"),
                ReportRow(sweep=f"{name}-1", digest="d", html="h", metrics={}, created_at=minutes(2)),
                IntentRow(
                    id=name,
                    kind="training-run",
                    payload={"driver": "api", "spec": small(name=name)},
                    actor="ada",
                    created_at=minutes(1),
                    status="waiting",
                    sweep=f"{name}-2",
                ),
                run_row("script", 1, project=name),
                note_row("n", 1, project=name, subject=name),
                event_row("registered", 1, model=name, version="1.0.0"),
            )
    entries = read_all(catalog, projects=["words"])
    assert len(entries) == 10
    assert {entry.project for entry in entries if entry.kind != "snapshot"} == {"words"}
    assert read_all(catalog, projects=[]) == []
    for kind in ("run", "sweep", "model", "project", "snapshot"):
        of_kind = read_all(catalog, projects=["words"], kind=kind)
        assert of_kind == [entry for entry in entries if entry.kind == kind] != []
    assert [entry.text for entry in read_all(catalog, projects=["words"], notes_only=True)] == ["n"]


def test_a_page_begins_at_since_and_refuses_what_it_cannot_mean(catalog: Catalog) -> None:
    with catalog.write() as session:
        add_all(session, run_row("r", 0), note_row("early", 0), note_row("late", 2))
    assert words(read_all(catalog, since=minutes(1))) == [("note", "digits"), ("finished", "digits/r")]
    with catalog.read() as session:
        for options in ({"limit": 0}, {"limit": 1_001}, {"kind": "pod"}):
            with pytest.raises(InvalidInput, match="is not accepted: give"):
                read_journal(session, **options)  # type: ignore[arg-type]
        place = read_all(catalog)[0].place
        with pytest.raises(InvalidInput, match="of another version"):
            read_journal(session, before=place._replace(key=("x",)))
    for text in ("", "x", "ü", "bm90IGpzb24", Cursor(1e300, "note", (1,)).encode(), "a" * 3_000):
        with pytest.raises(InvalidInput, match="give `older` of the page before"):
            Cursor.decode(text)


def test_an_alert_of_a_run_is_an_entry_of_its_project_its_sweep_and_itself(
    catalog: Catalog, small: Small
) -> None:
    def alert(key: str, run: str, event: str = "logged") -> AlertRow:
        project = run.partition("/")[0]
        fields = {"level": "warn", "kind": "run", "at": minutes(3).timestamp()}
        title = f"{run}: loss is odd"
        return AlertRow(key=key, event=event, project=project, subject=run, title=title, text="", **fields)

    with catalog.write() as session:
        add_all(
            session,
            snapshot_row("sha256:a", created_at=minutes(0)),
            sweep_row("digits-a", small(name="digits"), 0),
            run_row("digits-a.0001", 1, sweep="digits-a", trial=1),
            run_row("x", 1, project="words"),
            alert("1", "digits/digits-a.0001"),
            alert("2", "digits/digits-a.0001", "crashed"),
            alert("3", "words/x"),
        )
        sweep = subject_of(session, "sweep", "digits-a")
        run = subject_of(session, "run", "digits/digits-a.0001")

    def alerts(**options: Any) -> list[tuple[str, str]]:
        entries = [entry for entry in read_all(catalog, 1, **options) if entry.what == "alert"]
        return [(entry.subject, entry.summary) for entry in entries]

    expected = [("digits/digits-a.0001", "alert: loss is odd")]
    assert alerts(projects=["digits"]) == alerts(subject=sweep) == alerts(subject=run) == expected
    assert len(alerts()) == len(alerts(kind="run")) == 2
    assert alerts(kind="sweep") == alerts(notes_only=True) == []


def test_a_time_that_no_calendar_has_in_utc_is_refused(catalog: Catalog) -> None:
    first = datetime.fromisoformat("0001-01-01T00:00+14:00")
    with catalog.read() as session, pytest.raises(InvalidInput, match="since = 0001-01-01"):
        read_journal(session, since=first)
