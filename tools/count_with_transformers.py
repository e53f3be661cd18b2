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
from safetensors import safe_open

transformers.logging.set_verbosity_error()


def pick(r, *choices):
    return r.choice(choices)


def base(r):
    heads_per_kv, kv = pick(r, 1, 2, 3), pick(r, 1, 2, 4)
    heads = heads_per_kv * kv
    return dict(
        vocab_size=r.randint(5, 300),
        hidden_size=heads * 2 * r.randint(1, 12),
        num_hidden_layers=r.randint(1, 7),
        num_attention_heads=heads,
        num_key_value_heads=kv,
        tie_word_embeddings=r.random() < 0.3,
        attention_bias=r.random() < 0.4,
        pad_token_id=None,
        bos_token_id=1,
        eos_token_id=2,
    )


def maybe(r, key, value, probability=0.5):
    return {key: value} if r.random() < probability else {}


def even(r, low=1, high=12):
    return 2 * r.randint(low, high)


def experts(r, name):
    count = r.randint(2, 9)
    return {name: count, "num_experts_per_tok": r.randint(1, count)}


def sparse_layers(r, layers):
    chosen = [i for i in range(layers) if r.random() < 0.2]
    return dict(mlp_only_layers=chosen, decoder_sparse_step=pick(r, 1, 1, 2, 3))


def delta_net(r):
    keys = r.randint(1, 4)
    return dict(
        linear_num_key_heads=keys,
        linear_num_value_heads=keys * r.randint(1, 3),
        linear_key_head_dim=even(r),
        linear_value_head_dim=even(r),
        linear_conv_kernel_dim=r.randint(2, 5),
    )


def latent(r):
    return dict(
        q_lora_rank=pick(r, None, r.randint(1, 40)),
        kv_lora_rank=r.randint(1, 40),
        qk_nope_head_dim=r.randint(1, 20),
        qk_rope_head_dim=even(r, 1, 8),
        v_head_dim=r.randint(1, 20),
        first_k_dense_replace=r.randint(0, 4),
        n_shared_experts=r.randint(1, 3),
        moe_intermediate_size=r.randint(1, 40),
        intermediate_size=r.randint(1, 60),
    )


def groups(r, name="n_routed_experts"):
    count = pick(r, 1, 2, 4)
    size = r.randint(2, 5)
    chosen = r.randint(1, count)
    return {
        name: count * size,
        "n_group": count,
        "topk_group": chosen,
        "num_experts_per_tok": r.randint(1, chosen * size),
    }


def deepseek_v2(r):
    c = base(r) | latent(r) | experts(r, "n_routed_experts") | maybe(r, "mlp_bias", True)
    return transformers.DeepseekV2Config(**c), transformers.DeepseekV2ForCausalLM


def deepseek_v3(r):
    c = base(r) | latent(r) | groups(r) | maybe(r, "num_nextn_predict_layers", 1)
    return transformers.DeepseekV3Config(**c), transformers.DeepseekV3ForCausalLM


def glm4_moe(r):
    c = base(r) | groups(r) | maybe(r, "head_dim", even(r, 2, 20)) | dict(
        first_k_dense_replace=r.randint(0, 4),
        n_shared_experts=r.randint(1, 3),
        moe_intermediate_size=r.randint(1, 40),
        intermediate_size=r.randint(1, 60),
        use_qk_norm=r.random() < 0.5,
        partial_rotary_factor=1.0,
    )
    return transformers.Glm4MoeConfig(**c), transformers.Glm4MoeForCausalLM


def qwen3_moe(r):
    c = base(r)
    c |= experts(r, pick(r, "num_experts", "num_local_experts")) | maybe(r, "head_dim", even(r))
    c |= sparse_layers(r, c["num_hidden_layers"])
    c |= dict(moe_intermediate_size=r.randint(1, 40), intermediate_size=r.randint(1, 60))
    return transformers.Qwen3MoeConfig(**c), transformers.Qwen3MoeForCausalLM


def hybrid(r):
    c = base(r) | experts(r, "num_experts") | delta_net(r) | dict(
        head_dim=8 * r.randint(1, 6),
        moe_intermediate_size=r.randint(1, 40),
        shared_expert_intermediate_size=r.randint(1, 40),
    )
    kinds = ["linear_attention", "full_attention"]
    layers = c["num_hidden_layers"]
    how = r.randint(0, 2)
    if how == 1:
        c["layer_types"] = [r.choice(kinds) for _ in range(layers)]
    if how == 2:
        c["full_attention_interval"] = r.randint(1, 4)
    return c


def qwen3_next(r):
    c = hybrid(r)
    c |= sparse_layers(r, c["num_hidden_layers"]) | dict(intermediate_size=r.randint(1, 60))
    return transformers.Qwen3NextConfig(**c), transformers.Qwen3NextForCausalLM


def qwen3_5_moe_text(r):
    return transformers.Qwen3_5MoeTextConfig(**hybrid(r)), transformers.Qwen3_5MoeForCausalLM


def qwen3_5_moe(r):
    text = hybrid(r)
    vision = dict(hidden_size=16, depth=1, num_heads=2, intermediate_size=16,
                  out_hidden_size=text["hidden_size"])
    config = transformers.Qwen3_5MoeConfig(
        text_config=text, vision_config=vision, tie_word_embeddings=r.random() < 0.5)
    return config, transformers.Qwen3_5MoeForConditionalGeneration


def nemotron_h(r):
    c = base(r)
    layers = c.pop("num_hidden_layers")
    c["tie_word_embeddings"] = False  # transformers keeps a head of its own; we tie
    letters = "".join(r.choice("ME*-") for _ in range(layers))
    names = {"M": "linear_attention", "E": "moe", "*": "full_attention", "-": "mlp"}
    if r.random() < 0.5:
        c["hybrid_override_pattern"] = letters
    else:
        c["layers_block_type"] = [names[x] for x in letters]
    mamba_groups = r.randint(1, 3)
    c |= groups(r) | maybe(r, "head_dim", even(r)) | dict(
        mamba_num_heads=mamba_groups * r.randint(1, 3),
        mamba_head_dim=r.randint(1, 9),
        n_groups=mamba_groups,
        ssm_state_size=r.randint(1, 9),
        conv_kernel=r.randint(2, 5),
        use_conv_bias=r.random() < 0.5,
        use_bias=r.random() < 0.5,
        mlp_bias=r.random() < 0.5,
        intermediate_size=r.randint(1, 60),
        moe_intermediate_size=r.randint(1, 40),
        moe_shared_expert_intermediate_size=r.randint(1, 40),
        moe_latent_size=pick(r, None, None, r.randint(1, 20)),
        n_shared_experts=r.randint(1, 2),
    )
    return transformers.NemotronHConfig(**c), transformers.NemotronHForCausalLM


def gpt_oss(r):
    c = base(r) | experts(r, "num_local_experts") | maybe(r, "head_dim", even(r))
    c["intermediate_size"] = r.randint(1, 40)
    if r.random() < 0.3:
        c.pop("attention_bias")
    return transformers.GptOssConfig(**c), transformers.GptOssForCausalLM


def mixtral(r):
    c = base(r) | experts(r, "num_local_experts") | maybe(r, "head_dim", even(r))
    c |= dict(intermediate_size=r.randint(1, 40), sliding_window=pick(r, None, 8))
    return transformers.MixtralConfig(**c), transformers.MixtralForCausalLM


def llama4(r):
    c = base(r) | experts(r, "num_local_experts") | maybe(r, "head_dim", even(r))
    layers = c["num_hidden_layers"]
    c |= dict(
        intermediate_size=r.randint(1, 40),
        intermediate_size_mlp=r.randint(1, 60),
        interleave_moe_layer_step=pick(r, 1, 2, 3),
        use_qk_norm=r.random() < 0.5,
    )
    if r.random() < 0.3:
        c["moe_layers"] = [i for i in range(layers) if r.random() < 0.5]
    return c


def llama4_text(r):
    return transformers.Llama4TextConfig(**llama4(r)), transformers.Llama4ForCausalLM


def llama4_nested(r):
    vision = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
                  vision_output_dim=16, projector_input_dim=16, projector_output_dim=16)
    config = transformers.Llama4Config(text_config=llama4(r), vision_config=vision)
    return config, transformers.Llama4ForConditionalGeneration


def olmoe(r):
    c = base(r) | experts(r, "num_experts") | dict(intermediate_size=r.randint(1, 40))
    return transformers.OlmoeConfig(**c), transformers.OlmoeForCausalLM


def granitemoe(r):
    c = base(r) | experts(r, "num_local_experts") | dict(intermediate_size=r.randint(1, 40))
    return transformers.GraniteMoeConfig(**c), transformers.GraniteMoeForCausalLM


def phimoe(r):
    c = base(r) | experts(r, "num_local_experts") | dict(
        intermediate_size=r.randint(1, 40), lm_head_bias=r.random() < 0.5)
    return transformers.PhimoeConfig(**c), transformers.PhimoeForCausalLM


FAMILIES = [deepseek_v2, deepseek_v3, glm4_moe, qwen3_moe, qwen3_next, qwen3_5_moe_text,
            qwen3_5_moe, nemotron_h, gpt_oss, mixtral, llama4_text, llama4_nested, olmoe,
            granitemoe, phimoe]
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
