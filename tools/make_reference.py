#!/usr/bin/env python3
"""Makes a reference folder for `moestro verify --against` with Hugging Face transformers.

  python3 -m venv /some/venv && /some/venv/bin/pip install torch transformers==5.24 safetensors
  /some/venv/bin/python tools/make_reference.py examples/models/tiny.json /tmp/reference
  moestro verify --against /tmp/reference

CONFIG is a config.json or a folder with one; a folder's weights are used, or random ones are made.
Logits, loss, hidden states, gradients and AdamW steps are computed in float64 with eager attention
and stored in float32, in the files that docs/formats.md names. Labels are the next ids.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

OPTIMIZER = dict(lr=3e-3, betas=(0.9, 0.95), eps=1e-8)
WEIGHT_DECAY = 0.1
CLIP = 1.0


def randomise(model, generator):
    """Values large enough that every part matters: norms near 1, everything else near 0."""
    for name, tensor in list(model.named_parameters()) + list(model.named_buffers()):
        if not tensor.is_floating_point() or "inv_freq" in name:
            continue
        noise = torch.randn(tensor.shape, generator=generator)
        is_norm = tensor.dim() == 1 and "norm" in name
        scale = 0.5 if tensor.dim() < 2 else tensor.shape[-1] ** -0.5
        tensor.data.copy_(1.0 + 0.2 * noise if is_norm else scale * noise)


def make_model(source, generator):
    """The model with float32 weights and nothing random in its forward."""
    has_weights = source.is_dir() and any(source.glob("*.safetensors"))
    config = transformers.AutoConfig.from_pretrained(source)
    config._experts_implementation = "eager"  # the others refuse float64
    build = transformers.AutoModelForCausalLM
    if has_weights:
        model = build.from_pretrained(source, config=config, dtype=torch.float32,
                                      attn_implementation="eager")
    else:
        model = build.from_config(config, dtype=torch.float32, attn_implementation="eager")
        randomise(model, generator)
    model.config.use_cache = False
    return model.eval()


def evaluate(model, ids):
    """Leaves gradients of the loss in the model."""
    out = model(input_ids=ids, output_hidden_states=True)
    logits = out.logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    model.zero_grad()
    loss.backward()
    return loss, logits, out.hidden_states


def auxiliary_loss(model, ids):
    """transformers' load-balancing loss before its coefficient, of families that have one."""
    module = sys.modules[type(model).__module__]
    if not hasattr(module, "load_balancing_loss_func"):
        return None
    try:
        routers = model(input_ids=ids, output_router_logits=True).router_logits
    except IndexError:
        return None  # transformers stumbles over models without a single router
    experts = getattr(model.config, "num_experts", None) or model.config.num_local_experts
    loss = module.load_balancing_loss_func(routers, experts, model.config.num_experts_per_tok)
    return loss if torch.is_tensor(loss) else None


def saved_gradients(model):
    """Gradients under the names of the checkpoint: saved as if they were the weights."""
    values = {name: p.data for name, p in model.named_parameters()}
    with tempfile.TemporaryDirectory() as folder:
        for p in model.parameters():
            p.data = (torch.zeros_like(p) if p.grad is None else p.grad).float()
        model.save_pretrained(folder)
        for name, p in model.named_parameters():
            p.data = values[name]
        tensors = {}
        for file in Path(folder).glob("*.safetensors"):
            with safe_open(file, "pt") as saved:
                tensors |= {f"grad.{n}": saved.get_tensor(n) for n in saved.keys()
                            if "e_score_correction_bias" not in n}
        return tensors


def train(model, ids, steps):
    """Losses before and gradient norms of AdamW steps on one batch, without the auxiliary loss."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": WEIGHT_DECAY},
                                   {"params": vectors, "weight_decay": 0.0}], **OPTIMIZER)
    losses, norms = [], []
    for _ in range(steps):
        losses.append(evaluate(model, ids)[0].item())
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
        optimizer.step()
    return {"optimizer": "AdamW", **OPTIMIZER, "weight_decay": WEIGHT_DECAY,
            "weight_decay_on": "tensors of two or more dimensions", "clip_global_norm": CLIP,
            "losses": losses, "grad_norms": norms}


def make_reference(source, folder, seed=0, sequences=2, length=37, steps=5, dtype=torch.float64,
                   ids=None):
    """`ids`: a reference whose tokens to use."""
    torch.use_deterministic_algorithms(True)
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    folder.mkdir(parents=True, exist_ok=True)
    model = make_model(source, generator)
    model.save_pretrained(folder)
    vocab = model.config.get_text_config().vocab_size
    if ids is None:
        ids = torch.randint(0, vocab, (sequences, length), generator=generator)
    else:
        ids = load_file(ids / "inputs.safetensors")["input_ids"]
    save_file({"input_ids": ids}, folder / "inputs.safetensors")
    model.to(dtype)
    loss, logits, hidden = evaluate(model, ids)
    expected = {"logits": logits.detach().float(), "loss": loss.detach().float().reshape(1)}
    for i, state in enumerate(hidden[1:-1]):
        expected[f"hidden.{i}"] = state.detach().float()
    expected |= saved_gradients(model)
    aux = auxiliary_loss(model, ids)
    if aux is not None:
        expected["aux_loss"] = aux.detach().float().reshape(1)
    save_file({n: t.contiguous() for n, t in expected.items()}, folder / "expected.safetensors")
    (folder / "steps.json").write_text(json.dumps(train(model, ids, steps), indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sequences", type=int, default=2)
    parser.add_argument("--length", type=int, default=37)
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    make_reference(**{("source" if k == "config" else k): v for k, v in vars(args).items()})


if __name__ == "__main__":
    main()
