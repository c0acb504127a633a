"""Text classification: which package of Python's standard library is a docstring from?

It uses real texts that are on every machine, and a bag of hashed words, trained batch by batch with PyTorch's
own embedding bag.
"""

import importlib
import inspect
import pkgutil
import re
import zlib
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor, nn
from torch.nn import functional

from halving import Run, TrainedRun

PACKAGES = ("asyncio", "concurrent", "email", "http", "logging", "multiprocessing", "unittest", "xml")
_BUCKETS = 4_096
_MIN_LENGTH = 40  # characters


def load() -> pa.Table:
    """Docstrings of modules, classes and functions: ``text``, ``module`` and ``package``, each text once."""
    origin_of_text: dict[str, tuple[str, str]] = {}
    for package in PACKAGES:
        for name in sorted(_modules(package)):
            module = importlib.import_module(name)
            for text in _docstrings(module):
                origin_of_text.setdefault(text, (name, package))
    rows = [
        {"text": text, "module": module, "package": package}
        for text, (module, package) in sorted(origin_of_text.items())
    ]
    return pa.Table.from_pylist(rows)


def train(run: Run) -> None:
    """Train a linear model on hashed words; reports ``val_accuracy`` after every epoch."""
    model = network(int(run.params["width"]))
    optimizer = torch.optim.Adam(model.parameters(), lr=run.params["lr"])
    batches = run.dataset.loader(
        "train", batch_size=64, columns=["text", "package"], transform=hash_words, seed=run.seed or 0
    )
    words, starts, packages = hash_words(run.dataset.read("validation", columns=["text", "package"]))
    run.restore(model=model, optimizer=optimizer)
    for epoch in run.epochs():
        for batch_words, batch_starts, batch_packages in batches:
            optimizer.zero_grad()
            loss = functional.cross_entropy(scores(model, batch_words, batch_starts), batch_packages)
            loss.backward()
            optimizer.step()
        run.log({"train/loss": loss.item()}, step=epoch)
        with torch.no_grad():
            right = scores(model, words, starts).argmax(1) == packages
        run.report(val_accuracy=right.float().mean().item())
        run.save(model=model, optimizer=optimizer)


def predict(run: TrainedRun, table: pa.Table) -> dict[str, Any]:
    """How probable each package is for each text."""
    model = network(int(run.params["width"]))
    run.restore(model=model)
    with torch.no_grad():
        probabilities = scores(model, *bags_of(table["text"].to_pylist())).softmax(1)
    return dict(zip(PACKAGES, probabilities.T.numpy(), strict=True))


def network(width: int) -> nn.ModuleList:
    """The mean of the words' vectors, and from it the scores of the packages."""
    return nn.ModuleList([nn.EmbeddingBag(_BUCKETS, width), nn.Linear(width, len(PACKAGES))])


def scores(model: nn.ModuleList, words: Tensor, starts: Tensor) -> Tensor:
    bag, linear = model
    scored: Tensor = linear(bag(words, starts))
    return scored


def hash_words(rows: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Words as numbers, where each text begins among them, and the package's number.

    It runs in the loader's thread, beside training.
    """
    packages = [PACKAGES.index(package) for package in rows["package"].to_pylist()]
    return *bags_of(rows["text"].to_pylist()), torch.tensor(packages)


def bags_of(texts: list[str]) -> tuple[Tensor, Tensor]:
    """All words' numbers, shape (words,), and the place of each text's first, shape (texts,)."""
    words: list[int] = []
    starts = []
    for text in texts:
        starts.append(len(words))
        words += [zlib.crc32(word.encode()) % _BUCKETS for word in re.findall("[a-z]+", text.lower())]
    return torch.tensor(words), torch.tensor(starts)


def _modules(package: str) -> list[str]:
    """Names of a package and all modules in it that any system has."""
    path = importlib.import_module(package).__path__
    inside = [name for _, name, _ in pkgutil.walk_packages(path, f"{package}.")]
    return [package, *(name for name in inside if not re.search("__main__|win32|windows", name))]


def _docstrings(module: Any) -> list[str]:
    members = [
        member
        for _, member in inspect.getmembers(module)
        if inspect.isclass(member) or inspect.isfunction(member)
    ]
    own = [
        member
        for member in members
        if getattr(member, "__module__", "").startswith(module.__name__.partition(".")[0])
    ]
    methods = [
        method
        for member in own
        if inspect.isclass(member)
        for _, method in inspect.getmembers(member, inspect.isfunction)
    ]
    texts = [inspect.getdoc(each) or "" for each in (module, *own, *methods)]
    return [text for text in texts if len(text) >= _MIN_LENGTH]
