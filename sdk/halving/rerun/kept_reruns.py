"""What each rerun of ``halving why`` gave, kept beside the first run's record when it ends: what is trained
is not trained again.

A rerun is the same as another when all is the same that it is trained by: the plan (code, params, seed,
data…), and the interpreter, packages and machine. That is its key, and the file's name; so arms of other
comparisons, other metrics and more seeds find it, too.
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
    """One rerun that came to its end.

    Attributes:
        run: its id, in the first run's project.
        values: the last value of each of its metrics.
        seconds: from its start to its end, with what starting it took.
    """

    run: str
    values: Mapping[str, float]
    seconds: float


class KeptReruns:
    """Those of one store, for reruns that are trained here and now, or in pods.

    Args:
        build: whether they are trained in environments of the recorded packages, and not in this process's
            own.
        in_pods: whether they are trained in pods, of which the plan says all that is known before: image and
            resources.
    """

    def __init__(self, store: Store, *, build: bool, in_pods: bool = False) -> None:
        self._store = store
        self._build = build
        self._in_pods = in_pods
        if in_pods:
            self._here: dict[str, Any] = {"in_pods": True}
            return
        self._environment = environment()
        here = environment_facts(self._environment)
        self._here = {name: facts for name, facts in here.items() if not build or name != "packages"} | {
            "built": build
        }

    def not_seen(self, plans: Iterable[Plan]) -> list[str]:
        """Packages of their reruns that come from a folder or file outside the checkout, and images without a
        digest: what changed there makes no other key.
        """
        if self._in_pods:
            images = [plan.image for plan in plans if plan.image is not None]
            return list(dict.fromkeys(f"the image {image.name}" for image in images if image.by_tag))
        found = []
        for plan in plans:
            # those of the checkout are imported from the rerun's own
            recorded = plan.environment.get("packages_from") or {}
            origins = local_origins(plan.environment if self._build else self._environment)
            found += [
                f"{name} from {origin}"
                for name, origin in origins.items()
                if not recorded.get(name, "").startswith(CHECKOUT)
            ]
        return list(dict.fromkeys(found))

    def read(self, plan: Plan) -> KeptRerun | None:
        """What the rerun gave; None where it is not trained yet.

        Raises:
            StoreError: the store does not say, or the file is damaged; without it the rerun is trained again.
        """
        try:
            found = read_json(self._store, self._name(plan))
        except NotFound:
            return None
        return KeptRerun(found["run"], found["values"], found["seconds"])

    def keep(self, plan: Plan, new: RunInfo, seconds: float) -> KeptRerun:
        """Write what the rerun gave.

        Raises:
            StoreError: the store refuses, or is unavailable.
        """
        kept = KeptRerun(new.run, last_values(self._store, new), seconds)
        about: dict[str, Any] = {"changed": list(plan.changed), "seed": plan.seed, "time": now()}
        try:
            self._store.create(self._name(plan), to_json({**about, **asdict(kept)}))
        except AlreadyExists:
            # another process trained the same at the same time, and the first to end is the one that is kept
            return self.read(plan) or kept
        return kept

    def _name(self, plan: Plan) -> str:
        project, _, run = plan.name.partition("/")
        key = hashlib.sha256(to_json([asdict(plan), self._here])).hexdigest()[:24]
        return f"runs/project={project}/{run}/why-{key}.json"
