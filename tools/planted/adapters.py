"""What adapters promise: whose rows they change, by how much, in which order, and whose state is whose."""

MODEL = [("model_test", "src/model/model_test")]
KERNELS = [("kernels_test", "src/kernels/kernels_test")]
LAW = [("adapters_test", "tests/adapters_test")]
CACHE = [("cache_test", "src/cache/cache_test")]

MUTANTS = [
    ("state_of_the_model_for_its_adapters", "src/engine/submission.cc",
     "request.adapter ? request.adapter->digest() : card.digest", "card.digest", LAW),
    ("adapters_named_without_their_scale", "src/model/adapter/adapter.cc",
     "    parts.append(reinterpret_cast<const char*>(&scale), sizeof(scale));\n", "    (void)scale;\n", MODEL),
    ("adapters_named_by_one_half", "src/model/adapter/adapter.cc",
     "for (const Values* values : {&down, &up}) {\n      parts +=", "for (const Values* values : {&down, &down}) {\n      (void)up;\n      parts +=", MODEL),
    ("steps_without_adapters", "src/engine/engine.cc",
     "    slice.adapter = sequence.request.adapter.get();\n", "", LAW),
    ("neighbours_share_an_adapter", "src/model/layers/step.cc",
     "adapted_.back().products.data() == products.data() &&", "", MODEL),
    ("rows_in_between_are_adapted", "src/model/layers/step.cc",
     "adapted_.back().row_begin + adapted_.back().row_count == int64_t(sequence.row_begin)", "true", MODEL),
    ("scales_are_one", "src/kernels/front/low_rank_ops.cc",
     "if (scale != 1) Scale", "if (scale > 2) Scale", KERNELS),
    ("queries_and_gates_as_in_the_file", "src/model/adapter/adapter.cc",
     "int64_t at = ordered ? FileRowOfMemoryRow(heads, base_gguf, row) : row;", "int64_t at = row;", MODEL),
    ("value_heads_as_in_the_other_format", "src/model/adapter/adapter.cc",
     "if (ordered && base_gguf) at = HfRowOfGgufRow(heads, at);", "", MODEL),
    ("stabilised_scales_are_plain", "src/model/adapter/adapter_config.cc",
     "return stabilised_ ? alpha / std::sqrt(wanted) : alpha / wanted;", "return alpha / wanted;", MODEL),
    ("patterns_match_parts_of_names", "src/model/adapter/adapter_config.cc",
     "\\\\A(?:.*\\\\.)?(?:", "\\\\A(?:.*)?(?:", MODEL),
    ("dora_is_lora", "src/model/adapter/adapter_config.cc",
     'if (key == "use_dora" && !IsNothing(value)) {', 'if (key == "use_dora") continue;\n    if (key == "use_d0ra") {', MODEL),
    ("changed_files_are_served", "src/engine/adapters/adapter_shelf.cc",
     "if (digest && adapter->digest() != *digest) {", "if (digest && adapter->digest().empty()) {", LAW),
    ("adapters_in_use_make_way", "src/engine/adapters/adapter_shelf.cc",
     "if (it->second.adapter.use_count() > 1) continue;", "", LAW),
    ("equal_blocks_of_two_adapters", "src/cache/announce/announcer.cc",
     "const auto digest = Sha256(state_.digest(node));", 'const auto digest = Sha256("");', CACHE),
]
