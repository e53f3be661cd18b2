#!/usr/bin/env python3
"""Compares parameter counts and tensor names of random models with Hugging Face transformers.

  python3 -m venv /some/venv && /some/venv/bin/pip install torch transformers==5.24 safetensors
  /some/venv/bin/python tools/count_with_transformers.py build/release/tests/list_tensors --variants 40

Each variant changes the sizes and switches of a family's config at random. transformers builds the
model (without memory) and counts; every tenth variant is also saved and its tensor names and shapes
are compared. Exit 1 when anything differs. A tool for developers: no test depends on transformers.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from random_models import FAMILIES
from safetensors import safe_open

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

NOT_TEXT = ("visual.", "vision_model.", "vision_tower.", "multi_modal_projector.")


def is_text(name):
    return not any(part in name for part in NOT_TEXT)


def count(model):
    """Elements of the state, shared tensors once, vision left out."""
    state = model.state_dict(keep_vars=True)
    unique = {id(tensor): tensor.numel() for name, tensor in state.items() if is_text(name)}
    return sum(unique.values())


def saved_shapes(model, folder):
    model.save_pretrained(folder)
    shapes = {}
    for file in Path(folder).glob("*.safetensors"):
        with safe_open(file, "pt") as tensors:
            shapes |= {n: list(tensors.get_slice(n).get_shape()) for n in tensors.keys()}
    return {name: shape for name, shape in shapes.items() if is_text(name)}


def make_variants(args, folder):
    variants = []
    for family in FAMILIES:
        for i in range(args.variants):
            r = random.Random(f"{args.seed} {family.__name__} {i}")
            config, model_class = family(r)
            path = folder / f"{family.__name__}-{i}"
            with torch.device("meta"):
                total = count(model_class(config))
            config.architectures = [model_class.__name__]
            config.save_pretrained(path)
            shapes = None
            if i % 10 == 0:
                shapes = saved_shapes(model_class(config), path / "saved")
            variants.append((path / "config.json", total, shapes))
    return variants


def compare(line, total, shapes):
    if "error" in line:
        return [line["error"]]
    problems = []
    if line["total"] != total:
        problems.append(f"expected {total} parameters, got {line['total']}")
    ours = {n: s for n, s in line["tensors"].items() if not is_prediction(n, line)}
    if any("language_model" in name and "experts.gate_up_proj" in name for name in ours):
        # The published Qwen3.5 files hold fused experts; transformers saves them one by one.
        ours, shapes = without_experts(ours), shapes and without_experts(shapes)
    if shapes is not None and ours != shapes:
        missing = sorted(set(shapes) - set(ours))[:4]
        extra = sorted(set(ours) - set(shapes))[:4]
        other = [(n, shapes[n], ours[n]) for n in shapes if n in ours and shapes[n] != ours[n]][:4]
        problems.append(f"missing {missing}, not in the saved file {extra}, shapes {other}")
    return problems


def without_experts(shapes):
    return {name: shape for name, shape in shapes.items() if ".experts." not in name}


def is_prediction(name, line):
    """Layers past the last are multi-token prediction, which transformers never builds."""
    layers = json.loads(Path(line["file"]).read_text()).get("num_hidden_layers")
    if name.startswith("mtp."):
        return True
    parts = name.split(".layers.")
    return layers is not None and len(parts) == 2 and int(parts[1].split(".")[0]) >= layers


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("list_tensors", help="the program of that name in the build folder")
    parser.add_argument("--variants", type=int, default=20, help="per family")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        variants = make_variants(args, Path(folder))
        command = [args.list_tensors] + [str(path) for path, _, _ in variants]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        failed = 0
        for (path, total, shapes), text in zip(variants, lines.splitlines(), strict=True):
            for problem in compare(json.loads(text), total, shapes):
                failed += 1
                print(f"{path.parent.name}: {problem}")
                if failed <= 3:
                    print(path.read_text())
    print(f"{len(variants)} variants, {failed} differences")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
