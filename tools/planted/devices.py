"""A model on several devices: where layers and state lie, and what goes from one to the other."""

DEVICE = [("device_test", "src/device/device_test")]
MODEL = [("model_test", "src/model/model_test")]
KERNELS = [("kernels_test", "src/kernels/kernels_test")]

MUTANTS = [
    ("layers_all_at_home", "src/model/layers/step.h", "return On(placement_.OfLayer(layer));",
     "return On(placement_.OfLayer(layer) * 0);", MODEL),
    ("experts_with_their_layer", "src/model/layers/moe.cc", "const Step& there = step.OfExperts(layer_);",
     "const Step& there = step;", MODEL),
    ("angles_of_the_device_before", "src/model/decoders/dense_decoder.cc", "      rope = next.Bring(*step, rope);\n", "", MODEL),
    ("stream_left_behind", "src/model/decoders/residual_stack.cc", "next.Bring(*step, lane.x)", "lane.x", MODEL),
    ("first_values_made_anew", "src/model/families/rwkv7/family.cc",
     "first_values = i == 0 ? next.MakeRows(x.cols)", "first_values = i < 99 ? next.MakeRows(x.cols)", MODEL),
    ("state_in_the_first_memory", "src/model/layers/step.cc", "memory_.states_in(device)", "memory_.states_in(0)", MODEL),
    ("places_of_the_whole_unit", "src/state/spec.cc", "places.push_back(BytesIn(unit, layer.memory));",
     "places.push_back(unit.bytes);", MODEL),
    ("experts_vectors_with_their_layer", "src/model/tensor_plan.cc", "one.routed = tensor.routed;", "one.routed = false;", MODEL),
    ("spoilt_elsewhere_unheard", "src/model/layers/vocabulary.cc", "  step.JoinSpoilt();\n", "", MODEL),
    ("pieces_of_the_unit_before", "src/device/joined/joined_memory.cc", "unit * part.bytes + units->places[piece] + inside",
     "unit * 0 + units->places[piece] + inside", DEVICE),
    ("pages_of_neighbours_given_back", "src/device/joined/joined_memory.cc", "if (--part.users[page] == 0) {",
     "if (--part.users[page] < 9) {", DEVICE),
    ("room_of_the_widest", "src/device/joined/joined_memory.cc", "room = std::min(room, uint64_t", "room = std::max(room, uint64_t", DEVICE),
    ("instructions_in_one_step", "src/kernels/reference/gpu/tensor_core.cc", "k += core.step) sum", "k += 16) sum", KERNELS),
    ("any_tensor_core_will_do", "src/kernels/reference/gpu/tensor_probe.cc", "  return std::nullopt;", "  return kStepsOf16;", KERNELS),
]
