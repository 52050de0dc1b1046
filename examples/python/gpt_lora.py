"""Fine-tunes the GPT of gpt.py with Hugging Face's Trainer and LoRA (PEFT): only the adapters travel to the servers.

pip install transformers accelerate peft
slackline launch examples/python/gpt_lora.py --workers 2 examples/python/gpt-lora.yaml -- \
  --text TEXT --base RUN/model.safetensors
"""

import tempfile

import torch
from gpt import BYTES, SIZES, options_of, read
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments

import slackline
from slackline.integrations.transformers import SlacklineTrainer


class Tokens(Dataset):
    """Blocks as transformers wants them, which moves the labels itself."""

    def __init__(self, blocks):
        self.blocks = blocks

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, index):
        tokens, _ = self.blocks[index]
        labels = tokens.clone()
        labels[0] = -100  # the model predicts no first byte, and the Trainer counts labels
        return {"input_ids": tokens, "labels": labels}


def pretrained(path, size):
    """The model that gpt.py has trained, as one of transformers."""
    layers, width, heads, block = SIZES[size]
    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=BYTES, n_layer=layers, n_embd=width, n_head=heads, n_positions=block, bos_token_id=0, eos_token_id=0,
        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))  # fmt: skip
    weights = load_file(path)
    model.load_state_dict({**weights, "lm_head.weight": weights["transformer.wte.weight"]})  # they are tied
    return model


def with_adapters(model):
    """Freezes the model, and adds adapters to its attention (Hu et al. 2021)."""
    return get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules=["c_attn"], fan_in_fan_out=True))


def main():
    parser = options_of(__doc__)
    parser.add_argument("--base", required=True, help="model.safetensors of a run of gpt.py of the same --size")
    parser.add_argument("--bf16", action="store_true", help="parameters in bfloat16; the servers' stay float32")
    parser.add_argument("--loaders", type=int, default=0, help="processes that make batches")
    options = parser.parse_args()
    train, test = map(Tokens, read(options.text, SIZES[options.size][-1]))
    with slackline.connect() as worker, tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(worker.seed)  # all workers begin alike
        model = with_adapters(pretrained(options.base, options.size))
        if options.bf16:
            model.to(torch.bfloat16)
        model.print_trainable_parameters()
        arguments = TrainingArguments(folder, report_to="none", seed=worker.seed, logging_steps=20, prediction_loss_only=True,
                                      dataloader_num_workers=options.loaders)  # fmt: skip
        trainer = SlacklineTrainer(worker=worker, model=model, args=arguments, train_dataset=train, eval_dataset=test)
        trainer.train()
        print(f"{worker.name} took {worker.clock} steps: {worker.reason}")


if __name__ == "__main__":
    main()
