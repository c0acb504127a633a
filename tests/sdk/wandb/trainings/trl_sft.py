"""TRL's supervised fine-tuning with ``report_to="wandb"``, on a tokenizer that is made here."""

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

WORDS = [f"w{number}" for number in range(40)]


def main() -> None:
    torch.manual_seed(0)
    vocabulary = {word: number for number, word in enumerate(["<pad>", "<eos>", "<unk>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=32,
    )
    texts = [" ".join(WORDS[(start + place) % 40] for place in range(12)) for start in range(32)]
    arguments = SFTConfig(
        "out",
        report_to="wandb",
        run_name="tiny-sft",
        max_length=16,
        max_steps=6,
        logging_steps=1,
        save_strategy="no",
        per_device_train_batch_size=4,
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = SFTTrainer(
        LlamaForCausalLM(config),
        args=arguments,
        train_dataset=Dataset.from_dict({"text": texts}),
        processing_class=fast,
    )
    trainer.train()


if __name__ == "__main__":
    main()
