"""Pictures: that none is taken for another, and that what stands behind one stands where it should."""

PICTURE = [("picture_test", "src/picture/picture_test")]
MODEL = [("model_test", "src/model/model_test")]
TESTS = [("model_test", "src/model/model_test"), ("pictures_test", "tests/pictures_test"),
         ("state_test", "src/state/state_test")]
MUTANTS = [(*mutant, TESTS) for mutant in [
    ("pictures_named_by_their_size", "src/model/vision/seen_picture.cc",
     "  text.append(reinterpret_cast<const char*>(seen->pixels.rgb.data()), seen->pixels.rgb.size());\n", ""),
    ("one_name_for_all_towers", "src/model/vision/seen_picture.cc", "tower.digest", "std::string()"),
    ("places_of_a_picture_are_one", "src/state/virtual_tokens.cc",
     "put(static_cast<uint32_t>(place.index));", "put(0);"),
    ("half_a_name_is_spelt", "src/state/virtual_tokens.cc", "place.name.end());", "place.name.begin() + 16);"),
    ("text_stands_by_its_tokens", "src/engine/sight/sight.cc",
     "seen.place + seen.picture->positions() + (position - seen.end)", "position"),
    ("pictures_stand_in_one_row", "src/engine/sight/sight.cc",
     "seen.place + index / seen.picture->columns", "seen.place"),
    ("patches_see_those_before_them", "src/model/vision/patch_look.cc",
     "  params.ends = ends;\n", ""),
    ("steps_end_inside_of_whole_pictures", "src/engine/engine.cc",
     "return sequence.sight->WholeRows(sequence.lease.computed(), rows);", "return rows;"),
    ("vectors_of_the_first_row", "src/engine/sight/sight.cc",
     "int64_t{from - seen.begin} * dim", "int64_t{0} * dim"),
]] + [
    ("colours_of_the_screen", "src/picture/gif.cc", "frame_.colours = ordered ? grey : colours;",
     "if (frame_.data.empty() && frame_.width == 0) frame_.colours = ordered ? grey : colours;", PICTURE),
    ("vectors_of_the_layer_before", "src/model/decoders/dense_decoder.cc", "picture.vectors + (layer + 1) * x.cols",
     "picture.vectors + layer * x.cols", MODEL),
    ("guesses_stand_by_their_tokens", "src/engine/draft/mtp_drafter.cc", "  if (seen) batch.places = places_;\n", "",
     [("pictures_test", "tests/pictures_test")]),
    ("second_frame_first", "src/model/vision/qwen_tower.cc", "{&patch_weights_, &second_frame_}",
     "{&second_frame_, &patch_weights_}", MODEL),
]
