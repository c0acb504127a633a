"""Training a recorded run again, and comparing the two."""

import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from halving.data.dataset import Dataset
from halving.data.shard_copies import fetch_again
from halving.data.shards import shards_of
from halving.distributed.out_of_memory import too_large_by_attempt
from halving.errors import HalvingError, InvalidInput, NotFound
from halving.ingest.recovery import recover_run
from halving.machine.temporary_folders import scratch_folder
from halving.query.runs import RUNNING, UNFINISHED, RunInfo, read_run
from halving.records import provenance
from halving.records.run_record import RunRecords
from halving.rerun.comparison import read_points
from halving.rerun.environment import Environments, environment_of, environments
from halving.rerun.execution import search_path, train_again, trial_request
from halving.rerun.factors import FACTORS, Difference, environment_differences, exact_image, halved_attempts
from halving.rerun.image import ImagePlan, differences_before_start, digest_in, pod_differences, tag_has_moved
from halving.rerun.plan import Plan, plan_of
from halving.rerun.pods import PodRerun, Pods, RerunFailed
from halving.rerun.verdict import Verdict, expected_ends, has_weights, judge_rerun
from halving.rerun.worktree import check_commit, check_patch, repository_at, worktree
from halving.store.json_files import now, to_json
from halving.store.store import Store
from halving.trial.messages import Ready


class RerunRefused(HalvingError, RuntimeError):
    """The environment differs from the recorded one under ``strict``; the message has every difference."""


class _TagMoved(Exception):
    """The name of a trial's image means another image now, whose name is the message."""


@dataclass(frozen=True)
class Options:
    """How to train again.

    Attributes:
        repository: a folder in the checkout that has the commit.
        build: create a virtual environment of the recorded packages.
        strict: refuse if something differs from the record.
        accepted: factors (:data:`halving.rerun.factors.FACTORS`) that may differ even so.
        ignore: patterns of metrics that are not compared.
    """

    repository: Path
    build: bool = False
    strict: bool = False
    accepted: Sequence[str] = ()
    ignore: Sequence[str] = ()

    def __post_init__(self) -> None:
        for factor in self.accepted:
            if factor not in FACTORS:
                raise InvalidInput(f"factor {factor!r} is not accepted: give one of {', '.join(FACTORS)}")


def rerun(
    store: Store,
    project: str,
    run: str,
    options: Options,
    tell: Callable[[str], None] = print,
    pods: Pods | None = None,
) -> Verdict:
    """Train a run again, compare, and keep the verdict beside the new run's record.

    Args:
        tell: called with each line of messages for people before and while it trains.
        pods: the cluster, for trials that ran in an image; None if none is available.

    Raises:
        InvalidInput, NotFound: it cannot be trained again; the message names what is missing.
        RerunRefused: something differs from the record, with ``strict``.
        RerunFailed: its process left nothing to compare.
        StoreError: the store refuses, or is unavailable.
    """
    info, plan = plan_rerun(store, project, run)
    recorded = read_points(store, project, run, options.ignore)
    if not recorded and not has_weights(store, info):
        raise InvalidInput(
            f"run {plan.name} has no metric, and no checkpoint with a digest of its weights: nothing of a "
            "rerun could be compared"
        )
    if plan.image is not None and not trains_here(plan, plan.image, options, pods):
        new, differences = train_in_pod(store, plan, plan.image, options, pods, tell)
    else:
        with (
            environments() as built,
            prepare_interpreter(store, plan, options, built, tell) as (code, python, differences),
        ):
            new = train(store, plan, code, python, tell)
    verdict = judge_rerun(store, info, new, options.ignore, differences)
    store.create(
        f"runs/project={project}/{new.run}/rerun.json", to_json({**verdict.as_dict(), "time": now()})
    )
    return verdict


def plan_rerun(store: Store, project: str, run: str) -> tuple[RunInfo, Plan]:
    """Read a run and plan its rerun.

    Raises:
        InvalidInput: it is training now, or its record lacks something that a rerun needs.
        NotFound: its data is gone.
    """
    info = read_run(store, project, run)
    if info.status == UNFINISHED:
        # Its process was killed, and its last points are still in its journal, if that is on this machine.
        recover_run(store, project, run)
        info = read_run(store, project, run)
    if info.status == RUNNING:
        raise InvalidInput(f"run {project}/{run} is training now: wait for its end")
    records = RunRecords(store, project, run)
    plan = plan_of(info, records.latest_checkpoint())
    halved = halved_attempts(too_large_by_attempt(records))
    if halved:
        image = plan.image and plan.image.with_incomplete(halved)
        plan = replace(plan, incomplete=(*plan.incomplete, *halved), image=image)
    _check_data(store, plan)
    return info, plan


def check_code(store: Store, plan: Plan, options: Options) -> Path:
    """Check that the run's code and image can be restored, and return the checkout.

    Raises:
        InvalidInput: there is no checkout.
        NotFound: something is gone; the message names it.
    """
    repository = repository_at(options.repository)
    check_commit(repository, plan)
    check_patch(store, plan)
    _check_image(plan, options)
    return repository


@contextmanager
def prepare_interpreter(
    store: Store, plan: Plan, options: Options, built: Environments, tell: Callable[[str], None]
) -> Iterator[tuple[Path, str, list[Difference]]]:
    """Prepare code and interpreter until the block ends; also returns the remaining differences."""
    repository = check_code(store, plan, options)
    with worktree(repository, plan, store) as code:
        python = sys.executable
        if options.build:
            python = built.python_of(plan, code, tell)
        environment = environment_of(python, search_path(plan, code))
        differences = [*plan.incomplete, *environment_differences(plan.environment, environment)]
        for line in _difference_lines(differences):
            tell(line)
        _check_strict(
            plan, differences, options, "Bring them back (--env installs the recorded packages), or accept"
        )
        yield code, python, differences


def train(store: Store, plan: Plan, code: Path, python: str, tell: Callable[[str], None]) -> RunInfo:
    """Train in the recorded code, and return the new run.

    Raises:
        RerunFailed: the process recorded no run, or one that did not end as it must.
    """
    project, new = _new_run(plan)
    tell(f"training {plan.name} again as {project}/{new}")
    with scratch_folder("rerun-files") as scratch:
        status = train_again(plan, store, new, code=code, python=python, scratch=scratch)
    try:
        info = read_run(store, project, new)
    except NotFound:
        why = "what it printed says why"
        if status == 0:
            why = "its script began fewer runs than the recorded one had"
        raise RerunFailed(
            f"the rerun of {plan.name} ended with status {status} and recorded no run: {why}"
        ) from None
    _check_end(plan, info, f"(status {status}; what it printed says why)")
    return info


def trains_here(plan: Plan, image: ImagePlan, options: Options, pods: Pods | None) -> bool:
    """Whether a trial of an image is trained in a worktree, because that is accepted or this is the image."""
    if plan.commit is None:
        return False
    if "image" in options.accepted:
        return True
    return pods is None and provenance.image() in (image.name, image.exact)


def check_pods(plan: Plan, image: ImagePlan, options: Options, pods: Pods | None) -> Pods:
    """Check that a trial can be trained in a pod of its image, and return the cluster.

    Raises:
        InvalidInput: the options have ``build``, or there is no cluster.
    """
    if options.build:
        raise InvalidInput(
            f"--env is not accepted for run {plan.name}: it trains in a pod of the image {image.name}, "
            "whose packages are the recorded ones"
        )
    if pods is None:
        raise _no_cluster(plan, image)
    return pods


def train_in_pod(
    store: Store,
    plan: Plan,
    image: ImagePlan,
    options: Options,
    pods: Pods | None,
    tell: Callable[[str], None],
    tell_differences: Callable[[str], None] | None = None,
) -> tuple[RunInfo, list[Difference]]:
    """Train a trial in a pod of its image, or in as many as it had.

    Args:
        tell_differences: called with each line on differences from the record; by default ``tell``.

    Returns:
        The new run, and the differences that remain.

    Raises:
        InvalidInput: as :func:`check_pods`.
        NotFound: the image is gone.
        RerunRefused: something differs from the record, with ``strict``; nothing was trained.
        RerunFailed: the pod did not start, was ended, or recorded a run that did not end as it must.
    """
    cluster = check_pods(plan, image, options, pods)
    elsewhere = ""
    if plan.commit is not None:
        elsewhere = " (--except image would train in a worktree, with what is installed here)"
    advice = f"Nothing was trained{elsewhere}. Accept"
    _check_strict(plan, differences_before_start(image, None), options, advice)

    def train_in(image: ImagePlan) -> tuple[RunInfo, list[Difference]]:
        project, new = _new_run(plan)
        differences: list[Difference] = []

        def ready(report: Ready, now: str | None) -> None:
            if tag_has_moved(image, now):
                raise _TagMoved(str(now))
            differences[:] = [
                *differences_before_start(image, now),
                *pod_differences(image, plan.environment, report, now),
            ]
            for line in _difference_lines(differences):
                (tell_differences or tell)(line)
            _check_strict(plan, differences, options, advice)
            if now and "@" not in image.name:
                RunRecords(store, project, new).add_image_digest(1, digest_in(now))
            tell(f"training {plan.name} again as {project}/{new}")

        tell(f"starting a pod of the image {image.name}")
        cluster.train(
            store,
            PodRerun(
                rerun_of=plan.name,
                project=project,
                run=new,
                image=image.name,
                resources=image.resources,
                variables={name: value for name, value in plan.variables.items() if value is not None},
                request=replace(trial_request(plan, store, new), image=image.name),
            ),
            ready,
            tell,
        )
        try:
            info = read_run(store, project, new)
        except NotFound:
            raise RerunFailed(f"the rerun of {plan.name} ended in its pod and recorded no run") from None
        _check_end(plan, info, "in its pod, which is deleted,")
        return info, differences

    try:
        return train_in(image)
    except _TagMoved as moved:
        tell(f"{image.name} is another image now ({moved}), so it is left alone")
        # It is another run, because the first pod may read the mailbox of its own until it has ended.
        return train_in(replace(image, name=image.exact))


def _new_run(plan: Plan) -> tuple[str, str]:
    """The project and a new id for the rerun's run."""
    project, _, original = plan.name.partition("/")
    return project, f"{original[:110]}-rerun-{secrets.token_hex(3)}"


def _check_end(plan: Plan, info: RunInfo, how: str) -> None:
    ends = expected_ends(plan.ended, trial=plan.trial is not None)
    if info.status not in ends:
        raise RerunFailed(
            f"the rerun of {plan.name} cannot be compared: {info.project}/{info.run} ended as "
            f"{info.status} {how} and not as {' or '.join(ends)}, as it had to (the recorded run ended as "
            f"{plan.ended})"
        )


def _check_strict(plan: Plan, differences: Sequence[Difference], options: Options, advice: str) -> None:
    refused = [difference for difference in differences if difference.factor not in options.accepted]
    if options.strict and refused:
        listed = "\n".join(f"- {difference}" for difference in refused)
        factors = ", ".join(dict.fromkeys(difference.factor for difference in refused))
        raise RerunRefused(
            f"{len(refused)} things differ from the record of {plan.name}, and --strict refuses:\n{listed}\n"
            f"{advice} them by --except FACTOR ({factors})."
        )


def _check_data(store: Store, plan: Plan) -> None:
    """Check that a trial's data exists; a missing shard is fetched from ``HALVING_DVC_REMOTE``, if set."""
    if plan.dataset is None:
        return
    dataset = Dataset(store, *plan.dataset)
    manifest = dataset.manifest  # It raises NotFound, naming the snapshot.
    for split in manifest["shards"]:
        for shard in shards_of(manifest, split):
            if not store.exists(shard.name):
                gone = NotFound(
                    f"the snapshot {dataset.name} {dataset.digest} of run {plan.name} is incomplete: "
                    f"{shard.name} is gone"
                )
                fetch_again(store, shard, gone, lambda _remote, fetch: fetch())
    start = (plan.trial or {}).get("start_from")
    if start and not store.has_blob(start["digest"]):
        raise NotFound(
            f"the checkpoint {start['digest']} from which run {plan.name} started is gone from {store.root}"
        )


def _no_cluster(plan: Plan, image: ImagePlan) -> InvalidInput:
    here = ""
    if plan.commit is not None:
        here = (
            "; or start halving rerun in a container of that image (with HALVING_IMAGE_DIGEST set to it), or "
            "give --except image to train with what is installed here"
        )
    return InvalidInput(
        f"run {plan.name} ran in the image {image.name}, and a rerun trains in a pod of it, but no cluster "
        "is at hand: where the application is installed, and not the SDK alone, set HALVING_CLUSTER to the "
        "file of the cluster's settings and KUBECONFIG to its configuration, or start the job rerun in the "
        f"deployment{here}"
    )


def _check_image(plan: Plan, options: Options) -> None:
    """Check that this process runs in a script's image, because no pod is started for a script."""
    recorded = exact_image(plan.environment)
    if not recorded or "image" in options.accepted:
        return
    if provenance.image() not in (recorded, plan.environment.get("image")):
        raise NotFound(
            f"run {plan.name} ran in the image {recorded}, which this process does not run in: start "
            "halving rerun in a container of that image (with HALVING_IMAGE_DIGEST set to it), or give "
            "--except image to train with what is installed here"
        )


def _difference_lines(differences: Sequence[Difference]) -> list[str]:
    if not differences:
        return ["the environment is as recorded"]
    return [
        f"{len(differences)} differences from the record:",
        *(f"  {difference}" for difference in differences),
    ]
