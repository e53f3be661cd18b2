"""The peer of bench_training: Hugging Face transformers + PyTorch on the same weights and batch.

    peer.py FOLDER --threads 1 --dtype f32 --attention sdpa --experts grouped_mm --steps 6

Prints one JSON object with the keys of bench_training. AdamW is fused.
In bf16 the weights, gradients and optimizer state are bf16, which is transformers' fastest setting.
"""
import argparse
import json
import time

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM


def status_bytes(key):
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(key):
                return int(line.split()[1]) * 1024
    return 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    parser.add_argument("--attention", default="sdpa", choices=["sdpa", "eager"])
    parser.add_argument("--experts", default="eager")
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    tokens = load_file(f"{args.folder}/batch.safetensors")["tokens"]
    inputs, labels = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    baseline = status_bytes("VmRSS:")

    dtype = torch.bfloat16 if args.dtype == "bf16" else torch.float32
    config = AutoConfig.from_pretrained(args.folder)
    config._experts_implementation = args.experts
    config.output_router_logits = False  # no auxiliary loss on either side
    config.use_cache = False
    model = AutoModelForCausalLM.from_pretrained(
        args.folder, config=config, dtype=dtype, attn_implementation=args.attention)
    model.train()
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=1e-3, betas=(0.9, 0.95), eps=1e-8, fused=True)
    static = sum(p.numel() for p in model.parameters()) * (16 if args.dtype == "f32" else 8)

    losses, seconds = [], []
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")
    for _ in range(args.steps):
        start = time.perf_counter()
        loss = model(input_ids=inputs, labels=inputs, shift_labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
        seconds.append(time.perf_counter() - start)
    print(json.dumps({
        "program": f"transformers {args.experts}", "dtype": args.dtype, "threads": args.threads,
        "tokens": inputs.numel(), "losses": losses, "step_seconds": seconds,
        "static_bytes": static,
        "peak_above_static_bytes": status_bytes("VmHWM:") - baseline - static}))


main()
