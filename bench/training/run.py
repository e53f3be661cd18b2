#!/usr/bin/env python3
"""Training speed and memory against Hugging Face transformers + PyTorch.

    ./moestro.sh build && cmake --preset bench && cmake --build build/release --target bench_training
    bench/training/run.py [--rounds 3] [--threads 1 2] [--dtypes f32 bf16]

Sets up a virtual environment of its own (build/bench-venv: torch, transformers), makes one model
and batch, runs both programs in turns on the same threads, checks that their losses agree, and
prints the table of docs/benchmarks.md. Ratios are of the medians of one run of this script.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
VENV = ROOT / "build/bench-venv"
WORK = ROOT / "build/bench-training"
PROGRAM = ROOT / "build/release/bench/bench_training"
PACKAGES = ["torch==2.13.0", "transformers==5.24.0", "numpy", "safetensors"]
# transformers' settings: attention, experts. "eager" is written out in plain operations.
PEERS = {"eager": ("eager", "eager"), "sdpa, eager": ("sdpa", "eager"),
         "sdpa, grouped_mm": ("sdpa", "grouped_mm")}
WARM_UP = 2  # steps: kernels are compiled and memory is touched for the first time

MODEL = """
import sys, torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM
from safetensors.torch import save_file
folder, (seq, experts, sequences, top_k) = sys.argv[1], map(int, sys.argv[2:])
torch.manual_seed(0)
config = Qwen3MoeConfig(
    vocab_size=8192, hidden_size=512, intermediate_size=512, moe_intermediate_size=512,
    num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4, head_dim=64,
    num_experts=experts, num_experts_per_tok=top_k, norm_topk_prob=True, max_position_embeddings=16384,
    tie_word_embeddings=False, decoder_sparse_step=1, mlp_only_layers=[])
Qwen3MoeForCausalLM(config).save_pretrained(folder)
save_file({"tokens": torch.randint(0, 8192, (sequences, seq + 1))}, folder + "/batch.safetensors")
"""


def set_up():
    """Returns the interpreter of the peer."""
    python = VENV / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    probe = [python, "-c", "import torch, transformers, numpy, safetensors"]
    if subprocess.run(probe, capture_output=True).returncode != 0:
        print(f"installing {' '.join(PACKAGES)} into {VENV}", file=sys.stderr)
        subprocess.run([VENV / "bin/pip", "install", "-q", *PACKAGES], check=True)
    return python


def make_model(python, seq=512, experts=16, sequences=8, top_k=2):
    folder = WORK / f"s{seq}-e{experts}-b{sequences}-k{top_k}"
    if not (folder / "batch.safetensors").exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([python, "-c", MODEL, folder, str(seq), str(experts),
                        str(sequences), str(top_k)], check=True, capture_output=True)
    return folder


def environment(threads):
    env = dict(os.environ, OMP_NUM_THREADS=str(threads))
    # Settings that slow down a BLAS neither side should be judged by.
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        env.pop(name, None)
    return env


def run(command, threads):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True,
                          env=environment(threads))
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed:\n{done.stderr}")
    result = json.loads(done.stdout.strip().splitlines()[-1])
    # A number that is none is null in the JSON of one program and NaN in the other's.
    if not all(loss is not None and math.isfinite(loss) for loss in result["losses"]):
        sys.exit(f"{command[0]}: expected finite losses, got {result['losses']}")
    return result


def ours(folder, dtype, threads, steps, *flags):
    return run([PROGRAM, folder, "--dtype", dtype, "--threads", threads, "--steps", steps, *flags],
               threads)


def peer(python, folder, dtype, threads, steps, setting):
    attention, experts = PEERS[setting]
    return run([python, ROOT / "bench/training/peer.py", folder, "--dtype", dtype,
                "--threads", threads, "--steps", steps, "--attention", attention,
                "--experts", experts], threads)


def steady(results):
    """Seconds of all steps after the warm-up, over all rounds."""
    return [s for r in results for s in r["step_seconds"][WARM_UP:]]


def summary(results):
    seconds = steady(results)
    tokens = results[0]["tokens"]
    return {"tokens_per_second": tokens / statistics.median(seconds),
            "low": tokens / max(seconds), "high": tokens / min(seconds),
            "peak": statistics.median(r["peak_above_static_bytes"] for r in results)}


def share_of_peak(results):
    """Of the GEMM peak, median over steps: each against the peak measured right after it."""
    shares = [r["tokens"] * r["flops_per_token"] / seconds / peak
              for r in results
              for seconds, peak in zip(r["step_seconds"][WARM_UP:],
                                       r["gemm_peak_flops_per_second"][WARM_UP:])]
    return statistics.median(shares)


def median_peak(results):
    return statistics.median(p for r in results for p in r["gemm_peak_flops_per_second"])


def check_losses(dtype, results):
    """Every program in every round against transformers' first; returns the worst difference of ours."""
    tolerance = 1e-3 if dtype == "f32" else 5e-2
    expected = results["eager"][0]["losses"]
    worst = 0.0
    for name, rounds in results.items():
        for number, result in enumerate(rounds, 1):
            losses = result["losses"]
            if len(losses) != len(expected) or not losses:
                sys.exit(f"{name}, round {number}: {len(losses)} losses, {len(expected)} of eager")
            difference = max(abs(a - b) for a, b in zip(losses, expected))
            if not all(abs(a - b) <= tolerance for a, b in zip(losses, expected)):
                sys.exit(f"{name}, round {number}: losses disagree by {difference} in {dtype}: "
                         f"{losses} {expected}")
            if name.startswith("moestro"):
                worst = max(worst, difference)
    return worst


def compare(python, dtype, threads, rounds, steps):
    folder = make_model(python)
    names = ["moestro", "moestro recompute", *PEERS]
    results = {name: [] for name in names}
    for _ in range(rounds):  # in turns, so that a slow moment of the machine hits all alike
        results["moestro"].append(ours(folder, dtype, threads, steps))
        results["moestro recompute"].append(ours(folder, dtype, threads, steps, "--recompute"))
        for setting in PEERS:
            results[setting].append(peer(python, folder, dtype, threads, steps, setting))
    worst = check_losses(dtype, results)
    return results, {name: summary(r) for name, r in results.items()}, worst


def comparison_rows(python, dtype, threads, rounds, steps):
    results, table, worst = compare(python, dtype, threads, rounds, steps)
    mine = table["moestro"]
    best = max(table[setting]["tokens_per_second"] for setting in PEERS)
    # The least memory any setting of the peer needs.
    peak = min(table[setting]["peak"] for setting in PEERS)
    to_eager, to_eager_experts = (mine["tokens_per_second"] / table[setting]["tokens_per_second"]
                                  for setting in ("eager", "sdpa, eager"))
    share, gemm = share_of_peak(results["moestro"]), median_peak(results["moestro"])
    lines = []
    for name, row in table.items():
        label = name if name.startswith("moestro") else f"transformers, {name}"
        lines.append(
            f"| {dtype} | {threads} | {label} | {row['tokens_per_second']:.0f} "
            f"({row['low']:.0f}–{row['high']:.0f}) | {row['peak'] / 2**20:.0f} |")
    facts = (f"| {dtype} | {threads} | {mine['tokens_per_second'] / best:.2f} | "
             f"{to_eager:.2f} | {to_eager_experts:.2f} | "
             f"{share:.0%} of {gemm / 1e9:.0f} GFLOP/s | {mine['peak'] / peak:.0%} | "
             f"{table['moestro recompute']['peak'] / peak:.0%} | {worst:.1e} |")
    return lines, facts


def scaling_rows(python, threads, steps):
    """Cost per token while one of length, experts, experts chosen and tokens a step changes."""
    lines = []
    for seq, experts, top_k, tokens in [
            (512, 16, 2, 8192), (1024, 16, 2, 8192), (2048, 16, 2, 8192), (4096, 16, 2, 8192),
            (8192, 16, 2, 8192), (512, 8, 2, 8192), (512, 32, 2, 8192), (512, 64, 2, 8192),
            (512, 128, 2, 8192), (512, 16, 1, 8192), (512, 16, 4, 8192), (512, 16, 8, 8192),
            (512, 16, 2, 2048), (512, 16, 2, 4096), (512, 16, 2, 16384)]:
        folder = make_model(python, seq, experts, tokens // seq, top_k)
        result = ours(folder, "f32", threads, steps)
        rate = tokens / statistics.median(result["step_seconds"][WARM_UP:])
        lines.append(f"| {seq} | {experts} | {top_k} | {tokens} | {rate:.0f} | "
                     f"{result['flops_per_token'] / 1e6:.1f} | {share_of_peak([result]):.0%} | "
                     f"{result['peak_above_static_bytes'] / 2**20:.0f} |")
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--dtypes", nargs="+", default=["f32", "bf16"])
    parser.add_argument("--no-scaling", action="store_true")
    parser.add_argument("--python", help="an interpreter that has what the environment would hold")
    args = parser.parse_args()
    if args.rounds < 1 or args.steps <= WARM_UP:
        parser.error(f"expected a round at least, and more steps than the {WARM_UP} that warm up")
    python = args.python or set_up()
    rows, facts = [], []
    for dtype in args.dtypes:
        for threads in args.threads:
            more, fact = comparison_rows(python, dtype, threads, args.rounds, args.steps)
            rows += more
            facts.append(fact)
    print("| dtype | threads | program | tokens/s, median (min–max) | peak above static, MiB |")
    print("| --- | ---: | --- | ---: | ---: |")
    print("\n".join(rows))
    print("\n| dtype | threads | × best transformers | × eager | × sdpa, eager | of GEMM peak | peak "
          "memory, of transformers' | with recompute | largest loss difference |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    print("\n".join(facts))
    if not args.no_scaling:
        print("\n| S | E | top-k | tokens a step | tokens/s | MFLOP/token | of GEMM peak | "
              "peak above static, MiB |")
        print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
        print("\n".join(scaling_rows(python, max(args.threads), 4)))


if __name__ == "__main__":
    main()
