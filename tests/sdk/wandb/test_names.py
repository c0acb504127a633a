"""The names of the module: all that W&B documents is there, or says that it is not."""

from types import ModuleType

import pytest

# What ``wandb.__all__`` has in 0.31, and what the module has beside it.
_NAMES = [
    "__version__",
    "init",
    "finish",
    "setup",
    "save",
    "sweep",
    "controller",
    "agent",
    "config",
    "log",
    "summary",
    "join",
    "Api",
    "Graph",
    "Image",
    "Plotly",
    "Video",
    "Audio",
    "Table",
    "EvalTable",
    "Html",
    "box3d",
    "Object3D",
    "Molecule",
    "Histogram",
    "ArtifactTTL",
    "log_artifact",
    "use_artifact",
    "log_model",
    "use_model",
    "link_model",
    "define_metric",
    "watch",
    "unwatch",
    "plot_table",
    "Run",
    "attach",
    "teardown",
    "login",
    "helper",
    "require",
    "Artifact",
    "AlertLevel",
    "Settings",
    "Config",
    "CommError",
    "UsageError",
    "Error",
    "Classes",
    "JoinedTable",
    "visualize",
    "sagemaker_auth",
    "profiler",
    "run",
    "restore",
    "mark_preempting",
    "alert",
    "pin_config_keys",
    "keras",
    "sklearn",
    "tensorflow",
    "xgboost",
    "catboost",
    "tensorboard",
    "gym",
    "lightgbm",
    "jupyter",
    "sacred",
    "ensure_configured",
    "termsetup",
    "termlog",
    "termerror",
    "termwarn",
    "util",
    "errors",
    "env",
    "plot",
]


@pytest.mark.parametrize("name", _NAMES)
def test_a_name_of_wandb_is_there_or_says_that_it_is_not(wandb: ModuleType, name: str) -> None:
    if not hasattr(wandb, name):
        with pytest.raises(wandb.errors.NameMissing, match=rf"wandb\.{name} is not there in Halving: "):
            getattr(wandb, name)


def test_a_name_that_nobody_has_is_an_attribute_error(wandb: ModuleType) -> None:
    with pytest.raises(AttributeError, match="module 'wandb' has no attribute 'nope'"):
        _ = wandb.nope


def test_methods_that_are_not_there_say_what_to_do(wandb: ModuleType) -> None:
    run = wandb.init(project="p")
    for name in ("link_artifact", "link_model", "upsert_artifact", "finish_artifact", "status"):
        with pytest.raises(
            NotImplementedError, match=rf"run\.{name}\(\) is not there in Halving: "
        ) as caught:
            getattr(run, name)()
        assert isinstance(caught.value, wandb.Error)
    with pytest.raises(AttributeError):
        _ = run.nope


def test_frameworks_take_its_version(wandb: ModuleType) -> None:
    version = tuple(int(part) for part in wandb.__version__.split("."))
    assert version >= (0, 22)
    assert wandb.halving_version


def test_small_helpers_of_scripts_are_there(wandb: ModuleType) -> None:
    assert wandb.login(key="none") is True
    ids = {wandb.util.generate_id() for _ in range(100)}
    assert len(ids) == 100
    assert all((len(name) == 8 and name.isalnum() and name.islower()) or name.isdigit() for name in ids)
    assert wandb.helper.parse_config({"a": 1, "b": 2}, exclude=["a"]) == {"b": 2}
    assert wandb.env.PROJECT == "WANDB_PROJECT"
    assert wandb.util.make_artifact_name_safe("a b/c") == "a_b_c"
    wandb.require("core")
    assert wandb.run is None


def test_settings_of_setup_count_for_all_runs(wandb: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halving.wandb.session._defaults", {})
    wandb.setup(wandb.Settings(project="shared", run_group="g"))
    run = wandb.init(project=None, group="own")
    assert (run.project, run.group) == ("shared", "own")
    assert wandb.Settings(init_timeout=3).init_timeout == 3
    with pytest.raises(ValueError, match="there is no such field"):
        wandb.Settings().nope = 1
