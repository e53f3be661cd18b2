#!/usr/bin/env python3
"""Compares training of random models with Hugging Face transformers, through `moestro verify`.

  python3 -m venv /some/venv && /some/venv/bin/pip install torch transformers==5.24 safetensors
  /some/venv/bin/python tools/verify_with_transformers.py build/release/moestro --variants 20

Each variant changes the sizes and switches of a family's config, the number of sequences and their
length at random; make_reference.py makes its outputs in float64. A variant out of tolerance counts
as beyond float32 where transformers' own float32 strays as well. Exit 1 when anything else differs.
A tool for developers: no test depends on transformers.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from make_reference import make_reference
from random_models import FAMILIES
from safetensors.torch import load_file

RUNNABLE = ["mixtral", "qwen3_moe", "olmoe", "granitemoe", "glm4_moe"]
TOLERANCE = {"logits": 2e-5, "hidden": 2e-5, "loss": 2e-5, "grad": 1e-4, "aux_loss": 2e-5}
STEPS_TOLERANCE = 1e-3


def strays_in_float32(reference, folder):
    """Whether transformers itself comes near a tolerance in float32: near ties of routing, or sums
    that cancel."""
    make_reference(reference, folder, steps=3, dtype=torch.float32, ids=reference)
    expected, actual = (load_file(f / "expected.safetensors") for f in (reference, folder))
    for name, want in expected.items():
        difference = (actual[name] - want).abs().max() / want.abs().max().clamp_min(1e-30)
        if difference > 0.3 * TOLERANCE[name.split(".")[0]]:
            return True
    losses = [json.loads((f / "steps.json").read_text())["losses"] for f in (reference, folder)]
    return max(abs(a - b) for a, b in zip(*losses)) > 0.3 * STEPS_TOLERANCE


def random_length(r):
    """Mostly short; one in ten so long that the rounding of rotary angles shows."""
    return r.randint(500, 1500) if r.random() < 0.1 else r.randint(2, 90)


def check(program, family, seed, folder):
    r = random.Random(seed)
    config, model_class = family(r)
    config.architectures = [model_class.__name__]
    config.save_pretrained(folder / "config")
    reference = folder / "reference"
    make_reference(folder / "config", reference, seed=r.randint(0, 10**6),
                   sequences=r.randint(1, 3), length=random_length(r), steps=3)
    done = subprocess.run([program, "verify", "--against", reference], capture_output=True,
                          text=True)
    if done.returncode == 0:
        return "ok", done.stdout
    if "outside tolerance" in done.stdout and strays_in_float32(reference, folder / "float32"):
        return "beyond float32", done.stdout
    return "FAILED", done.stdout + done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("moestro")
    parser.add_argument("--variants", type=int, default=20, help="per family")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--families", nargs="+", default=RUNNABLE)
    parser.add_argument("--keep", type=Path, help="folder for the references that failed")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    failed = 0
    for family in [f for f in FAMILIES if f.__name__ in args.families]:
        results = {"ok": 0, "beyond float32": 0, "FAILED": 0}
        for i in range(args.variants):
            seed = f"{args.seed} {family.__name__} {i}"
            with tempfile.TemporaryDirectory() as folder:
                result, text = check(args.moestro, family, seed, Path(folder))
                if result == "FAILED":
                    print(f"{family.__name__} {i}:\n{text}")
                    if args.keep:
                        shutil.copytree(folder, args.keep / f"{family.__name__}-{i}")
            results[result] += 1
        failed += results["FAILED"]
        print(f"{family.__name__}: " + ", ".join(f"{n} {what}" for what, n in results.items()),
              flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
