"""Starting a run: in your own script, or as an attempt at a trial."""

import contextlib
import operator
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from halving.distributed.joining import ranks_of_process
from halving.distributed.ranks import ALONE, Ranks
from halving.errors import InvalidInput, NotFound
from halving.identifiers import check_name, new_id
from halving.records.config_params import recorded_params
from halving.records.run_record import RunRecords
from halving.run.determinism import hash_is_random
from halving.run.rerun_request import RerunRequest, how_begun
from halving.run.run import Run
from halving.store.opening import open_store
from halving.store.retry import retry_while_unavailable, warn_once
from halving.store.store import Store
from halving.trial.context import Controller, TrialContext

# The ordinal of a run among those that this process begins, by which a rerun of its script recognizes it.
_ORDINALS = count(1)
# Points are in the store a few seconds after they are logged, and are read there every few seconds.
_MIN_SILENT_SECONDS = 30.0


def init(
    project: str,
    config: Any = None,
    root: str | Path | None = None,
    *,
    url: str | None = None,
    token: str | None = None,
    id: str | None = None,
    seed: int | None = None,
    tags: Mapping[str, str] | None = None,
    strict: bool = False,
    system_metrics: float | None = 30.0,
    deterministic: bool = False,
    distributed: bool = True,
    silent_after: float | None = None,
) -> Run:
    """Start a run, or the next attempt of the run ``id``.

    Its record is complete and durable when this returns.

    In a script of several processes (of torchrun, Accelerate, Lightning Fabric) they have one run: all ranks
    call this, with the same arguments, and rank 0's count. It joins the default process group of
    ``torch.distributed``, or makes it, where torchrun has started the process and nobody has made it yet.

    Args:
        project: a name that groups runs.
        config: the hyperparameters; they never change afterwards. A dict, an OmegaConf, argparse's Namespace,
            a dataclass or another object of names and values. ``run.params`` has them as plain data; what has
            no value of its own (a function, a dtype) is kept as text, with a warning. A run that is continued
            by ``id`` keeps its own.
        root: the store (default: ``HALVING_ROOT``, then ``./.halving``).
        url: instead of a store, a Halving server's address, such as ``https://halving.example.org`` (default
            where no ``root`` is given: ``HALVING_URL``). Everything is sent there; while it does not answer,
            the journal on this machine keeps it.
        token: of that server (default: ``HALVING_TOKEN``).
        id: continue this run; ``restore`` gives its latest checkpoint. (A new id starts a run of that id.)
        seed: seeds ``random``, numpy and torch, and is recorded: a whole number from 0 to 2**63 - 1.
        tags: labels of your choice, recorded.
        strict: raise in ``log()`` for a wrong name or value. By default it is left out, counted and warned
            about: many hours of training must not end because of a metric.
        deterministic: let this process compute the same from the same ``seed`` (0 if none is given), as far
            as its libraries can: torch's deterministic algorithms, cuBLAS' workspace, the workers of data
            loaders. It imports torch where that is installed. To have Python's ``hash`` fixed, too, start the
            process with ``PYTHONHASHSEED=0``. ``docs/rerun.md`` says what it costs.
        distributed: False: a run of this process alone, whichever others train with it; so it may be called
            on one rank only.
        system_metrics: seconds between samples of CPU, memory, disk, network and GPUs (extras ``system`` and
            ``gpu``); None for none.
        silent_after: seconds, at least 30, after which people are told that the run has logged nothing
            (``docs/alerts.md``); None: its project's rule decides.

    Raises:
        InvalidInput: a name, a hyperparameter, the seed, the address or ``silent_after`` is not accepted.
        AlreadyExists: the run ``id`` exists with other hyperparameters.
        StoreError: the store cannot be written, or was unavailable for ten minutes.
    """
    seed = _check_seed(seed)
    if silent_after is not None:
        _check_silent_after(silent_after)
    ranks = ranks_of_process() if distributed else ALONE
    number = next(_ORDINALS)
    parent: dict[str, Any] = {}
    if tags:
        parent["tags"] = dict(tags)
    rerun = RerunRequest.from_environment()
    if rerun is not None and not rerun.means(number):
        root = rerun.others
        url = None
    elif rerun is not None:
        project = rerun.project
        id = rerun.run
        config = rerun.params
        root = rerun.root
        url = None
        seed = rerun.seed
        deterministic = rerun.deterministic
        parent = {**parent, **rerun.parent}
    if deterministic and seed is None:
        seed = 0
    if deterministic and hash_is_random():
        warn_once(
            "PYTHONHASHSEED",
            "deterministic = True, but Python's hash() differs from one start to the next, and with it the "
            "order of a set of texts: "
            "start the program with PYTHONHASHSEED=0",
        )
    run = ranks.together("halving.init()", lambda: id or new_id())
    store = open_store(root, url, token, f"{project}/{run}")
    recorded = how_begun(number)
    if silent_after is not None:
        recorded = {**recorded, "silent_after": silent_after}
    settings = ranks.together("halving.init()", lambda: _common_settings(store, project, id, config, seed))
    return Run(
        store,
        project=project,
        run_id=run,
        params=settings["params"],
        seed=settings["seed"],
        parent=parent,
        strict=strict,
        system_metrics=system_metrics,
        deterministic=deterministic,
        recorded=recorded,
        ranks=ranks,
    )


def open_trial(context: TrialContext, controller: Controller, ranks: Ranks = ALONE) -> Run:
    """Open the run of a trial's attempt in the trial's process, or in each process of a gang."""
    return Run(
        Store(context.root),
        project=context.project,
        run_id=context.run,
        params=context.params,
        seed=context.seed,
        parent=context.parent,
        attempt=context.attempt,
        trial=context,
        controller=controller,
        captured=context.provenance,
        deterministic=context.deterministic,
        recorded={"trial": context.as_recorded()},
        ranks=ranks,
    )


def _check_seed(seed: Any) -> int | None:
    """Convert a seed, which may be NumPy's or torch's, to an int.

    Raises:
        InvalidInput: not every library takes it, or not every database holds it.
    """
    if seed is None:
        return None
    with contextlib.suppress(TypeError):
        number = operator.index(seed)
        if not isinstance(seed, bool) and 0 <= number < 2**63:
            return number
    raise InvalidInput(f"seed = {seed!r:.200} is not accepted: give a whole number from 0 to 2**63 - 1")


def _check_silent_after(seconds: Any) -> None:
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not is_number or not _MIN_SILENT_SECONDS <= seconds < float("inf"):
        raise InvalidInput(
            f"silent_after = {seconds!r:.80} is not accepted: give seconds, at least {_MIN_SILENT_SECONDS:g}"
        )


def _common_settings(
    store: Store, project: str, id: str | None, config: Any, seed: int | None
) -> dict[str, Any]:
    """The params and the seed, which all ranks have in common."""
    if config is None and id is not None:
        records = RunRecords(store, check_name("project", project), check_name("run id", id))
        with contextlib.suppress(NotFound):
            config = retry_while_unavailable(store, f"run {id}", records.read)["params"]
    return {"params": recorded_params(config), "seed": seed}
