# Mutants of joint ops and pair sums of a CPU.
KERNELS = [("kernels_test", "src/kernels/kernels_test")]

MUTANTS = [
    ("one_token_decays_once", "src/kernels/cpu/generic/delta-inl.h",
     "const V16 s = Fma(key, delta[c], Mul(LoadLanes<kPartial>(at, lanes), decay));",
     "const V16 s = Fma(key, delta[c], LoadLanes<kPartial>(at, lanes));", KERNELS),
    ("value_heads_never_tiled", "src/kernels/cpu/heads/delta_mix.cc",
     "return shape().tiled_heads ? key_head + i * shape().key_heads : key_head * heads_per_key() + i;",
     "return key_head * heads_per_key() + i;", KERNELS),
    ("states_on_the_way_left_out", "src/kernels/cpu/heads/delta_mix.cc",
     "if (tap != nullptr) CopyHeads(mix, s, tap->state, key_head);", "", KERNELS),
    ("every_head_has_the_first_gate", "src/kernels/cpu/attention.cc",
     "call.table.sigmoid_mul(RowOf(*call.gate, row) + head * value_dim, out, value_dim, out);",
     "call.table.sigmoid_mul(RowOf(*call.gate, row), out, value_dim, out);", KERNELS),
    ("offsets_of_pair_sums_left_out", "src/kernels/cpu/generic/matrix-inl.h",
     "for (int t = 0; t < kTokens && W::kOffset != 0; ++t) {\n    const Int offset",
     "for (int t = 0; t < 0; ++t) {\n    const Int offset", KERNELS),
]
