"""Keeping the results of the reruns of ``halving why``, so that none is trained twice.

They are beside the first run's record. Two reruns are the same if everything is the same that affects them:
the plan (code, params, seed, data…), and the interpreter, packages and machine. The hash of these is the key
in the file's name, so that arms of other comparisons, other metrics and more seeds use the result, too.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from halving.errors import AlreadyExists, NotFound
from halving.query.runs import RunInfo, read_json
from halving.records.provenance import CHECKOUT, environment
from halving.rerun.experiment import last_values
from halving.rerun.factors import environment_facts, local_origins
from halving.rerun.plan import Plan
from halving.store.json_files import now, to_json
from halving.store.store import Store


@dataclass(frozen=True)
class KeptRerun:
    """One rerun that is complete.

    Attributes:
        run: its id, in the first run's project.
        values: the last value of each of its metrics.
        seconds: its duration, including its start.
    """

    run: str
    values: Mapping[str, float]
    seconds: float


class KeptReruns:
    """The kept reruns of one store that were trained as they would be now.

    Args:
        build: whether they are trained in environments of the recorded packages, and not in this process's
            own.
        in_pods: whether they are trained in pods, whose image and resources are in the plan.
    """

    def __init__(self, store: Store, *, build: bool, in_pods: bool = False) -> None:
        self._store = store
        self._build = build
        self._in_pods = in_pods
        if in_pods:
            self._here: dict[str, Any] = {"in_pods": True}
            return
        self._environment = environment()
        self._here = {**environment_facts(self._environment), "built": build}
        if build:
            del self._here["packages"]

    def unwatched_sources(self, plans: Iterable[Plan]) -> list[str]:
        """Sources whose content is not in the key: packages outside the checkout, images without a digest."""
        if self._in_pods:
            images = [plan.image for plan in plans if plan.image is not None]
            return list(dict.fromkeys(f"the image {image.name}" for image in images if image.by_tag))
        sources = []
        for plan in plans:
            # Packages of the checkout are imported from the rerun's own.
            recorded = plan.environment.get("packages_from") or {}
            environment = plan.environment if self._build else self._environment
            origins = local_origins(environment)
            sources += [
                f"{name} from {origin}"
                for name, origin in origins.items()
                if not recorded.get(name, "").startswith(CHECKOUT)
            ]
        return list(dict.fromkeys(sources))

    def read(self, plan: Plan) -> KeptRerun | None:
        """Read the result of a rerun; None if it is not trained yet.

        Raises:
            StoreError: the store fails, or the file is damaged; if it is deleted, the rerun is trained again.
        """
        try:
            rerun = read_json(self._store, self._name(plan))
        except NotFound:
            return None
        return KeptRerun(rerun["run"], rerun["values"], rerun["seconds"])

    def keep(self, plan: Plan, new: RunInfo, seconds: float) -> KeptRerun:
        """Write the result of a rerun.

        Raises:
            StoreError: the store refuses, or is unavailable.
        """
        kept = KeptRerun(new.run, last_values(self._store, new), seconds)
        about: dict[str, Any] = {"changed": list(plan.changed), "seed": plan.seed, "time": now()}
        try:
            self._store.create(self._name(plan), to_json({**about, **asdict(kept)}))
        except AlreadyExists:
            # Another process trained the same at the same time, and the first result counts.
            return self.read(plan) or kept
        return kept

    def _name(self, plan: Plan) -> str:
        project, _, run = plan.name.partition("/")
        key = hashlib.sha256(to_json([asdict(plan), self._here])).hexdigest()[:24]
        return f"runs/project={project}/{run}/why-{key}.json"
