"""Hugging Face's Trainer with ``report_to="wandb"``."""

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Sentences(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> dict:
        generator = torch.Generator().manual_seed(index)
        return {
            "input_ids": torch.randint(0, 50, (6,), generator=generator),
            "labels": torch.tensor(index % 2),
        }


def main() -> None:
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 16, "max_position_embeddings": 8}
    model = BertForSequenceClassification(BertConfig(**sizes, num_hidden_layers=1, num_attention_heads=2))
    arguments = TrainingArguments(
        "out",
        report_to="wandb",
        run_name="tiny-bert",
        num_train_epochs=2,
        logging_steps=2,
        eval_strategy="epoch",
        save_strategy="no",
        learning_rate=1e-3,
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(model, arguments, train_dataset=Sentences(), eval_dataset=Sentences())
    trainer.train()
    trainer.evaluate()


if __name__ == "__main__":
    main()
