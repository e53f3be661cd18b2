"""Random configs of model families, for comparisons with Hugging Face transformers: FAMILIES holds
functions from a random.Random to (config, model class).
"""

import transformers


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


def rope(r, c, partial=1.0):
    """rope_parameters of any kind that trains; original contexts are about as long as sequences."""
    head_dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    half = int(head_dim * partial) // 2
    kind = pick(r, "default", "linear", "yarn", "llama3", "longrope", "longrope")
    rope = dict(rope_type=kind, rope_theta=pick(r, 1e4, 5e5), partial_rotary_factor=partial)
    if kind in ("linear", "llama3", "yarn") or r.random() < 0.3:
        rope |= dict(factor=r.uniform(1.0, 16.0))
    if kind in ("yarn", "llama3", "longrope"):
        rope |= dict(original_max_position_embeddings=r.randint(8, 100))
    if kind == "llama3":
        rope |= dict(low_freq_factor=1.0, high_freq_factor=r.uniform(2.0, 8.0))
    if kind == "yarn":
        rope |= maybe(r, "truncate", False) | maybe(r, "mscale", r.uniform(0.5, 2.0))
        rope |= maybe(r, "mscale_all_dim", r.uniform(0.5, 2.0)) | maybe(r, "beta_fast", 16.0)
        rope |= maybe(r, "beta_slow", 2.0)
    if kind == "longrope":
        rope |= {name: [r.uniform(1.0, 8.0) for _ in range(half)]
                 for name in ("short_factor", "long_factor")}
    if kind in ("yarn", "longrope"):
        rope |= maybe(r, "attention_factor", r.uniform(0.5, 2.0), 0.3)
    if partial == 1.0:
        rope.pop("partial_rotary_factor")
    return dict(rope_parameters=rope, max_position_embeddings=r.randint(100, 400))


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
    )
    head_dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    partial = 0.5 if head_dim % 4 == 0 and r.random() < 0.5 else 1.0
    c |= rope(r, c, partial) | dict(partial_rotary_factor=partial)
    return transformers.Glm4MoeConfig(**c), transformers.Glm4MoeForCausalLM


def qwen3_moe(r):
    c = base(r)
    c |= experts(r, pick(r, "num_experts", "num_local_experts")) | maybe(r, "head_dim", even(r))
    c |= sparse_layers(r, c["num_hidden_layers"])
    c |= dict(moe_intermediate_size=r.randint(1, 40), intermediate_size=r.randint(1, 60))
    c |= rope(r, c)
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
    c |= rope(r, c)
    if c["rope_parameters"]["rope_type"] in ("yarn", "longrope"):
        c.setdefault("head_dim", c["hidden_size"] // c["num_attention_heads"])  # null stops these
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
    c |= rope(r, c)
    return transformers.OlmoeConfig(**c), transformers.OlmoeForCausalLM


def granitemoe(r):
    c = base(r) | experts(r, "num_local_experts") | dict(intermediate_size=r.randint(1, 40))
    c |= rope(r, c)
    return transformers.GraniteMoeConfig(**c), transformers.GraniteMoeForCausalLM


def phimoe(r):
    c = base(r) | experts(r, "num_local_experts") | dict(
        intermediate_size=r.randint(1, 40), lm_head_bias=r.random() < 0.5)
    return transformers.PhimoeConfig(**c), transformers.PhimoeForCausalLM


FAMILIES = [deepseek_v2, deepseek_v3, glm4_moe, qwen3_moe, qwen3_next, qwen3_5_moe_text,
            qwen3_5_moe, nemotron_h, gpt_oss, mixtral, llama4_text, llama4_nested, olmoe,
            granitemoe, phimoe]
