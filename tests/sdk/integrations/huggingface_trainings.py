"""Small trainings by Hugging Face's Trainer."""

from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from halving.integrations.huggingface import HalvingCallback

# Of an epoch; each step has 8 samples.
SAMPLES = 32
STEPS = 4


class Sentences(torch.utils.data.Dataset[dict[str, Any]]):
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(index)
        return {
            "input_ids": torch.randint(0, 50, (6,), generator=generator),
            "labels": torch.tensor(index % 2),
        }


def tiny() -> BertForSequenceClassification:
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 16, "max_position_embeddings": 8}
    return BertForSequenceClassification(BertConfig(**sizes, num_hidden_layers=1, num_attention_heads=2))


def training(callback: HalvingCallback, folder: Path, **changes: Any) -> Trainer:
    settings = {
        "num_train_epochs": 2,
        "logging_steps": 2,
        "eval_strategy": "epoch",
        "save_strategy": "no",
        "learning_rate": 1e-3,
        **changes,
    }
    arguments = TrainingArguments(
        str(folder / "out"),
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        **settings,
    )
    return Trainer(
        tiny(), arguments, train_dataset=Sentences(), eval_dataset=Sentences(), callbacks=[callback]
    )
