"""How tokens are chosen on the host: what repeats, what is strange, what is ruled out."""

MUTANTS = [
    ("all_likely_ones_go", "src/sample/ranking.cc",
     "before += std::exchange(last, kept.weight);", "before += std::exchange(last, kept.weight) * 0 + kept.weight;"),
    ("one_draw_for_two_choices", "src/sample/sampler.cc",
     "DrawAt(params.seed ^ kOfXtc, position)", "DrawAt(params.seed ^ kOfXtc * 0, position)"),
    ("repetitions_across_breakers", "src/sample/repetitions.cc",
     "std::min(same, longest)", "std::min(same, longest + count)"),
    ("repetitions_one_too_long", "src/sample/repetitions.cc",
     "i = params.allowed_length; i < length", "i = params.allowed_length; i <= length"),
    ("the_strangest_first", "src/sample/sampler.cc",
     "return a.strangeness < b.strangeness;", "return a.strangeness > b.strangeness;"),
    ("words_by_their_first_letters", "src/sample/sampler.cc",
     "tokens.last(before.size())", "tokens.first(before.size())"),
    ("sigmas_without_temperature", "src/sample/sampler.cc",
     "double{params.top_n_sigma} * sigma / double{params.temperature}", "double{params.top_n_sigma} * sigma"),
]
