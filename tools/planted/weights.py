"""What models read and compute: weights of every type, and what is particular to a family."""

KERNELS = [("kernels_test", "src/kernels/kernels_test")]
MODEL = [("model_test", "src/model/model_test")]
TENSOR = [("tensor_test", "src/tensor/tensor_test")]
WEIGHTS = [("weights_test", "src/weights/weights_test")]

TEXT = [("text_test", "src/text/text_test")]

MUTANTS = [
    ("parts_of_two_models", "src/weights/format/gguf_parts.cc", "if (own == expected) continue;", "continue;", WEIGHTS),
    ("special_tokens_are_words", "src/text/vocab/json/tekken.cc", "token.special = true;", "token.special = false;", TEXT),
    ("modelopt_divides", "src/weights/recipe/recipe.cc", "scale = divided ? scale / global : scale * global;", "scale = scale / global;", WEIGHTS),
    ("scale_of_the_first_expert", "src/weights/recipe/recipe.cc", "FloatAt(recipe.global, row / (recipe.rows / recipe.groups))", "FloatAt(recipe.global, 0)", WEIGHTS),
    ("positions_everywhere", "src/model/decoders/dense_decoder.cc",
     "traits.turns.empty() || traits.turns[size_t(i)]", "true", MODEL),
    ("norms_before_positions", "src/model/layers/attention.cc",
     "shape_.late_norm && rope.half != 0", "shape_.late_norm && rope.half < 0", MODEL),
    ("residuals_as_they_are", "src/model/decoders/dense_decoder.cc",
     "    if (traits_.residual_scale != 1) Scale(context, y, traits_.residual_scale, y);\n", "", MODEL),
    ("yarn_without_mscale", "src/model/config/rope.cc", "  if (config.mscale == 0) return", "  return", MODEL),
    ("queries_beyond_the_context", "src/model/families/ministral3/family.cc",
     "beta != 0 && reader->context_tokens() > original", "beta < 0", MODEL),
    ("scores_without_yarn", "src/model/families/deepseek_v3/family.cc",
     "attention.q_scale = float(louder * louder);", "attention.q_scale = float(louder);", MODEL),
    ("windows_with_yarn", "src/model/families/olmo3/family.cc",
     "    traits.window_rope = ReadWindowRope(", "    ReadWindowRope(", MODEL),
    ("the_first_that_has_some", "src/model/families/gemma4/config.cc",
     "int producer = decoder.layer_count - shared_layers - 1;\n  while (producer >= 0 && decoder.slides[size_t(producer)] != decoder.slides[size_t(layer)]) {\n    --producer;",
     "int producer = 0;\n  while (producer >= 0 && decoder.slides[size_t(producer)] != decoder.slides[size_t(layer)]) {\n    ++producer;", MODEL),
    ("values_behind_the_norm", "src/model/families/gemma4/attention.cc", "  inputs.k_norm = k_norm_.data();", "  inputs.k_norm = q_norm_.data();", MODEL),
    ("watched_by_every_layer", "src/model/families/gemma4/attention.cc", "if (window_ == 0 && !shares_) step.Watch(", "if (window_ == 0) step.Watch(", MODEL),
    ("whole_heads_turn", "src/model/config/rope.cc", "f < config.turning_pairs ? config.factor : kNoTurn", "config.factor", MODEL),
    ("experts_weigh_alike", "src/kernels/cpu/expert_ops.cc", "if (params.expert_scale) weights[k] *=", "if (false) weights[k] *=", KERNELS),
    ("writes_of_one_sign", "src/model/families/olmo_hybrid/signed_delta.cc",
     "if (shape_.write_scale != 1) Scale(", "if (false) Scale(", MODEL),
    ("layers_forget_alike", "src/model/families/minimax/lightning.cc", "const double factor = 1 - place + 1e-5;", "const double factor = 1 + 1e-5 - 0 * place;", MODEL),
    ("streams_that_are_not_normed", "src/model/families/minimax/minimax.cc", "  Add(context, h, y, x);", "  Add(context, x, y, x);", MODEL),
    ("sinks_of_other_heads", "src/kernels/cpu/attention.cc", "= sinks[i % group];", "= sinks[0];", KERNELS),
    ("sinks_in_every_part", "src/kernels/cpu/attention.cc", "if (index == task.partial) {", "if (true) {", KERNELS),
    ("sinks_unweighed", "src/kernels/cpu/attention.cc", "        mine.sum[i] = 1;\n", "        mine.sum[i] = 0;\n", KERNELS),
    ("gates_without_limit", "src/kernels/reference/math.h", "const float g = limit < gate ? limit : gate;", "const float g = gate;", KERNELS),
    ("bias_of_the_next_expert", "src/kernels/cpu/expert_ops.cc", "while (slot >= ends[expert])", "while (slot + 1 >= ends[expert])", KERNELS),
    ("mxfp4_without_subnormals", "src/tensor/blocks.h", "uint32_t{0x00200000} << e :", "0 :", TENSOR),
    ("mxfp4_pairs_turned", "src/weights/format/stored_tensor.cc", "const int shift = j % 2 * 4;", "const int shift = 4 - j % 2 * 4;", MODEL),
    ("gate_and_up_turned", "src/model/layers/moe.cc", '"ffn_gate_exps.weight", 2, 0,', '"ffn_gate_exps.weight", 2, 1,', MODEL),
    ("experts_without_bias", "src/model/layers/moe.cc", "    if (!bias.empty()) AddExpertBias(", "    if (false) AddExpertBias(", MODEL),
    ("gpt_oss_truncated", "src/model/families/gpt_oss/family.cc", "gguf_truncate = false", "gguf_truncate = true", MODEL),
    ("grids_by_the_low_bits", "src/tensor/factored.cc", "block.qs[g] | (block.qh[g / 4] >> (g % 4 * 2) & 3) << 8", "block.qs[g]", TENSOR),
    ("deltas_of_one_sign", "src/tensor/factored.cc", "high >> 15 != 0", "high >> 15 > 1", TENSOR),
    ("panels_begin_at_zero", "src/kernels/cpu/generic/quantised-inl.h", "false, col > 0};", "false, col > cols};", KERNELS),
    ("codes_without_a_sign", "src/kernels/cpu/coded/blocks.cc", "high[e % 32] | (values.code[e] >> 2 & 1)", "high[e % 32] | (values.code[e] >> 3 & 1)", KERNELS),
    ("rows_in_their_order", "src/weights/recipe/recipe.cc", "{0, 4, 1, 5, 2, 6, 3, 7}", "{0, 1, 2, 3, 4, 5, 6, 7}", WEIGHTS),
    ("groups_of_nowhere", "src/weights/recipe/recipe.cc",
     "group >= 0 && group < recipe.groups ? group : -1", "group >= 0 && group <= recipe.groups ? 0 : -1", WEIGHTS),
    ("two_weights_of_one_name", "src/weights/recipe/find.cc", "(recipe->name == data.name || !by_name_.contains(recipe->name))", "!recipe->name.empty()", WEIGHTS),
]
