#!/usr/bin/env python3
"""Plants one error in each CUDA kernel and asks whether its tests notice. Needs a GPU.

    tools/cuda_mutants.py               build all mutants side by side, then run each against its tests
    tools/cuda_mutants.py --build-only  without a GPU: do they compile and link?
    tools/cuda_mutants.py --check       only whether every mutant still applies (a test of the tree)

REQUIRES a build folder with CUDA and its tests built (make test-cuda). A mutant costs the compilation of
one .cu and a link, and nothing in the build folder changes: a copy of the file comes first in the include
path, its object first in the link. Then a few seconds of the GPU for its tests.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CUDA = "kernels/cuda/"

# name, file, text, what it becomes, the .cu that is compiled (None: the file itself), tests
MUTANTS = [
    ("last_value_of_wide_norms", "rows/norm.cu",
     "    for (int64_t i = threadIdx.x; i < n; i += kThreads) {",
     "    for (int64_t i = threadIdx.x; i < n - (n > 1024 ? 1 : 0); i += kThreads) {", None, "RowOps.Norms"),
    ("last_pair_of_many_heads", "rows/rope.cu",
     "if (index >= heads * angles.half) return;",
     "if (index >= heads * angles.half - (heads > 2 ? 1 : 0)) return;", None, "RowKernels.Rope"),
    ("later_strips_of_convolutions", "rows/conv.cu",
     "sum = fmaf(w[j], inputs[t + j], sum);", "sum = fmaf(w[j], inputs[t + j], begin > 0 ? -sum : sum);", None,
     "ChannelKernels.ShortConv"),
    ("last_column_of_wide_rows", "rows/elementwise.cu",
     "  if (column >= cols) return;", "  if (column >= cols - (cols > 500 ? kVector : 0)) return;", None,
     "RowOps.Elementwise"),
    ("last_unit_of_embeddings", "start/embed.cu",
     "if (unit >= out.cols / 32) return", "if (unit >= out.cols / 32 - (unit > 1 ? 1 : 0)) return", None,
     "RowKernels.EmbedsEveryType"),
    ("last_expert_not_chosen", "rows/experts.cu",
     "  for (int k = 0; k < params.top_k; ++k) {",
     "  for (int k = 0; k < params.top_k - (params.top_k > 4 ? 1 : 0); ++k) {", None,
     "ExpertKernels.RoutePlanAndCombine"),
    ("one_token_of_f32_products", "product_float.cu",
     "if (first + r >= y.cols || begin + t >= end) continue;",
     "if (first + r >= y.cols || begin + t >= end || begin + t == 5) continue;", None, "ExpertKernels.ProductF32"),
    ("rounds_to_zero", "quantised/quantise.cuh",
     "__fadd_rn(__fmul_rn(", "__fadd_rz(__fmul_rn(", "quantised/quantise.cu",
     "*QuantisedProducts.EveryNumberOfRows*"),
    ("fold_of_one_row", "quantised/forms/single_256.cu",
     "    for (int s = 0; s < 8; ++s) {\n      of_block.sum",
     "    for (int s = 0; s < (block + b > 2 ? 7 : 8); ++s) {\n      of_block.sum", None,
     "*QuantisedProducts.EveryNumberOfRows*"),
    ("last_unit_of_one_row", "quantised/forms/links.cuh",
     "__int2float_rn(low[j] + high[j] -", "__int2float_rn(low[j] + (threadIdx.x % 8 == 7 && j == 3 ? 0 : high[j]) -",
     "quantised/forms/one_types.cu", "*StackTest*:JointOpsTest.*"),
    ("unit_of_few_rows", "quantised/forms/few.cuh",
     "        Mma32(c[n][j], a, b);", "        if (n == 0 || j < 3) Mma32(c[n][j], a, b);", "quantised/forms/few_32.cu",
     "*QuantisedProducts.EveryNumberOfRows*"),
    ("rows_of_the_second_part", "quantised/forms/many.cuh",
     "return row + 16 * m + 8 * half + g; }", "return row + 16 * m + (m > 0 ? 0 : 8) * half + g; }",
     "quantised/forms/many_32.cu", "*QuantisedProducts.ManyOddRowsAreFewRows*"),
    ("second_half_of_warpgroups", "quantised/forms/warpgroup.cuh",
     "+ token + 8 * kN * part;", "+ token + (quad > 0 ? 0 : 8 * kN * part);", "quantised/forms/many_256.cu",
     "*QuantisedProducts.ManyRowsAreFewRows*"),
    ("experts_behind_the_first_hundred", "quantised/forms/product.cuh",
     "end[i] = e < operands.experts ? operands.begin[e + 1] : INT32_MAX;",
     "end[i] = e < min(operands.experts, 100) ? operands.begin[e + 1] : INT32_MAX;", "quantised/forms/single_256.cu",
     "*QuantisedProducts.Experts*"),
    ("last_of_equal_experts", "rows/experts.cu",
     "if (other > order) order = other,", "if (other >= order) order = other,", None, "*ExpertKernels*"),
    ("last_piece_of_a_tile", "product_float.cu", "for (int piece = 0; piece < pieces; ++piece) {\n    WaitAsync",
     "for (int piece = 0; piece + (blockIdx.y > 2) < pieces; ++piece) {\n    WaitAsync", None, "*ExpertKernels.Product*F32*"),
    ("taps_one_token_late", "scan/lane_scan.cu",
     "final ? sequence.row_count : view->row - sequence.row_begin;",
     "final ? sequence.row_count : view->row - sequence.row_begin + 1;", None, "*LaneScanTest*"),
    ("third_head_of_a_token", "scan/delta_token.cu",
     "    if (index >= kTeams) {\n", "    if (index > kTeams) {\n", None, "*DeltaTest*"),
    ("state_of_the_last_head", "scan/delta_token.cu",
     "const int last = team + (heads - 1 - team) / kTeams * kTeams;", "const int last = team;", None, "*DeltaTest*"),
    ("tiles_of_blocks_with_more", "tensor/few/small.cuh",
     "block * call.each + min(block, call.more);", "block * call.each;", "tensor/few/small.cu", "*StackTest*"),
    ("last_slice_of_a_tile", "tensor/few/small.cuh",
     "for (int s = 1; s < slices; ++s)", "for (int s = 1; s + (slices > 4) < slices; ++s)", "tensor/few/small.cu", "*InputTest*"),
    ("scale_of_a_large_row", "tensor/few/small.cuh",
     "return RoundScaled(call, r, rounded);", "return RoundScaled(call, r, rounded) * 0.5f;", "tensor/few/small.cu", "*StackTest*:*InputTest*"),
    ("gates_of_a_second_matrix", "tensor/few/small.cuh",
     "const int column = row - part.begin;\n  part.out[column]", "const int column = min(row - part.begin, 14);\n  part.out[column]",
     "tensor/few/small.cu", "*InputTest*"),
    ("up_beside_its_gate", "quantised/forms/small.cuh",
     "y = Gated(call.op, y, ups[place][lane / kQuads]);", "y = Gated(call.op, y, ups[place][0]);",
     "quantised/forms/small_types.cu", "*StackTest*"),
    ("later_columns_of_a_small_row", "quantised/forms/small.cuh",
     "if (column_ / kColumns * kColumns < call_.cols)", "if (column_ / kColumns * kColumns < min(call_.cols, 3300))",
     "quantised/forms/small_types.cu", "*InputTest*"),
    ("turns_of_later_copies", "quantised/forms/one.cuh",
     "to + quads * kGroup + (first ^ Turn(quads))", "to + quads * kGroup + first",
     "quantised/forms/one_types.cu", "*StackTest*:*InputTest*"),
    ("turns_of_later_copies_of_a_small_row", "quantised/forms/links.cuh",
     "to + quads * kGroup + (first ^ Turn(quads))", "to + quads * kGroup + first",
     "quantised/forms/small_types.cu", "*StackTest*:*InputTest*"),
    ("links_behind_the_first_eight", "quantised/forms/links.cuh",
     "read(min(i, kRowPairs - kBatch));", "read(0);",
     "quantised/forms/small_types.cu", "*StackTest*:*InputTest*"),
    ("last_whole_quad_of_a_chain", "quantised/forms/links.cuh",
     "4 * (q + kStep) <= left; q += kStep", "4 * (q + kStep) < left; q += kStep",
     "quantised/forms/small_types.cu", "*StackTest*:*InputTest*"),
    ("first_slices_that_were_handed_over", "packed/many.cuh",
     "if (parts.begin > rank) TakeOver(total);", "if (parts.begin > rank + 1) TakeOver(total);", "packed/many.cu",
     "*PackedProductTest.EveryTiling*"),
    ("hands_of_the_launch_before", "packed/many.cuh",
     "if (lane_ == 0) *hand = 0;", "if (lane_ > 0) *hand = 0;", "packed/many.cu", "*PackedProductTest.EveryTiling*"),
    ("last_slice_of_an_adapter", "tensor/low_rank.cu",
     "for (int s = 1; s < launch.slices; ++s) total", "for (int s = 1; s + (launch.slices > 4) < launch.slices; ++s) total",
     None, "*LowRankTest*"),
    ("adapter_of_the_row_before", "tensor/low_rank.cu",
     "call.tables[row - 1] == table) continue;", "call.tables[row - 1] != nullptr) continue;", None, "*LowRankTest*"),
    ("large_values_of_an_adapter", "tensor/low_rank.cu",
     "if (__syncthreads_or(large) == 0) return;", "if (__syncthreads_or(large) < 2) return;", None, "*LowRankTest*"),
    ("last_expert_of_many", "quantised/chosen/blocks.cuh",
     "e < experts; e += kThreads) {", "e < min(experts, kThreads); e += kThreads) {", "quantised/chosen/chosen_256.cu",
     "*MixtureTest*"),
    ("gates_of_the_slot_before", "quantised/chosen/chosen.cuh",
     "const int unit = first + i / kTile, slot", "const int unit = first + min(i / kTile, 9), slot",
     "quantised/chosen/chosen_256.cu", "*MixtureTest*"),
    ("stages_that_are_not_there_yet", "quantised/chosen/chosen.cuh",
     "    WaitForAllBut(depth - 1);\n", "    WaitForAllBut(depth);\n", "quantised/chosen/chosen_256.cu", "*MixtureTest*"),
    ("plan_before_it_is_made", "quantised/chosen/chosen.cuh",
     "  const int column = 8 * static_cast<int>(threadIdx.x);\n  WaitForInputs();\n",
     "  const int column = 8 * static_cast<int>(threadIdx.x);\n  LetNextStart();\n  WaitForInputs();\n",
     "quantised/chosen/chosen_256.cu", "*MixtureTest*"),
    ("third_turn_of_a_room", "quantised/chosen/chosen.cuh",
     "if (++at == depth) at = 0;", "if (++at >= 2) at = 0;", "quantised/chosen/chosen_32.cu", "*MixtureTest*"),
    ("last_row_of_a_tile_of_experts", "quantised/chosen/chosen.cuh",
     "rows = min(kTile, stack.rows - first);", "rows = min(kTile, stack.rows - first - (first > 600 ? 1 : 0));",
     "quantised/chosen/chosen_256.cu", "*MixtureTest*"),
    ("second_rows_of_a_warp", "quantised/chosen/chosen.cuh",
     "if (first + j * kWarps >= all) break;", "if (first + j * kWarps >= min(all, 20)) break;",
     "quantised/chosen/chosen_256.cu", "*MixtureTest*"),
    ("slots_for_choices", "quantised/chosen/chosen.cuh",
     "slot_of[thread] = __ldcg(call.slot + thread);", "slot_of[thread] = thread;", "quantised/chosen/chosen_256.cu",
     "*MixtureTest*"),
    ("sum_of_experts_from_zero", "quantised/chosen/chosen.cuh",
     "if (combines() && !call.zero) y", "if (combines() && call.zero) y", "quantised/chosen/chosen_256.cu", "*MixtureTest*"),
    ("experts_that_wait_in_vain", "joined/joined_ops.cc",
     "    RunChosenSum(stream_, *experts_);\n", "", None, "*MixtureTest*"),
    ("gates_that_wait_in_vain", "joined/joined_ops.cc",
     "    RunChosenGates(stream_, *gates_);\n", "", None, "*MixtureTest*"),
    ("own_row_in_a_later_page", "tensor/attention/one.cuh",
     "slot + (early ? 0 : 1)", "slot", "tensor/attention/one.cu", "*OneRowTest*"),
    ("heads_that_wait_in_vain", "joined/joined_ops.cc",
     "    StoreHeads(stream_, waiting.step, waiting.kv, inputs, q, k, v);\n", "    (void)inputs, (void)q, (void)k, (void)v;\n", None,
     "*OneRowTest*"),
    ("routes_that_wait_in_vain", "joined/joined_ops.cc",
     "    RouteExperts(stream_, waiting.logits, waiting.params, waiting.routing);\n", "    (void)waiting;\n", None, "*RouteTest*"),
    ("products_before_a_route", "joined/joined_ops.cc",
     "if (!NormRides(x, norm_ && MayNormOnTheWay(norm_->x))) Run();",
     "if (norm_ && !NormRides(x, MayNormOnTheWay(norm_->x))) Run();", None, "*RouteTest*"),
    ("halves_of_a_softmax", "rows/experts.cu",
     "sum += lane_ < 16 ? probability_[i] : other;", "sum += probability_[i];", None, "*ExpertKernels.RouteAndPlan*"),
    ("one_slot_for_two_choices", "rows/experts.cu",
     "first[mine.expert] + __popc(same & ((1u << lane) - 1));", "first[mine.expert];", None, "*ExpertKernels.RouteAndPlan*"),
    ("last_of_few_rows", "rows/experts.cu",
     "if (warp < static_cast<int>(logits.rows)) {", "if (warp < static_cast<int>(logits.rows) - (warp > 20 ? 1 : 0)) {", None,
     "*ExpertKernels.RouteAndPlan*"),
    ("normed_row_is_not_kept", "joined/normed_floats.cu",
     "if (blockIdx.x == 0) *reinterpret_cast", "if (blockIdx.x == 0 && column(j) < 2000) *reinterpret_cast", None, "*InputTest*"),
    ("rest_of_a_chain", "joined/normed_floats.cu",
     "for (int i = whole; i < pieces; ++i)", "for (int i = whole; i < pieces - (whole > 0 ? 1 : 0); ++i)", None, "*InputTest*"),
    ("third_output_of_a_block", "joined/normed_floats.cu",
     "rows(1 + min(in_block, outputs - 1))", "rows(1 + min(in_block, min(outputs - 1, 1)))", None, "*InputTest*"),
    ("gates_of_the_ninth_query", "tensor/attention/one.cuh",
     "from + ColumnOf(pair));", "from + ColumnOf(min(pair, 4 * kDim - 1)));", "tensor/attention/one.cu", "*OneRowTest*"),
    ("pages_behind_the_eighth", "tensor/attention/one.cuh",
     "for (int i = 0; i < count; ++i) {", "for (int i = 0; i < min(count, 8); ++i) {", "tensor/attention/one.cu", "*OneRowTest*"),
    ("tops_that_fall", "tensor/attention/one.cuh",
     "make_float2(joint.rises ? next_mark.x : mark.x,", "make_float2(next_mark.x,", "tensor/attention/one.cu", "*OneRowTest*"),
    ("second_share_of_the_channels", "tensor/attention/one.cuh",
     "(rank_ << share_bits_) + c;", "((rank_ > 1 ? 1 : rank_) << share_bits_) + c;", "tensor/attention/one.cu", "*OneRowTest*"),
    ("keys_of_the_last_warp", "tensor/attention/one.cuh",
     "&room_.k[8 * warp + lane % 8]", "&room_.k[8 * min(warp, 6) + lane % 8]", "tensor/attention/one.cu", "*OneRowTest*"),
    ("pages_before_the_window", "tensor/attention/one.cuh",
     "first_ = page_ = FirstSeen(call_.params, position_) / kKeys;",
     "first_ = page_ = FirstSeen(call_.params, position_) / kKeys + (position_ > 1900);",
     "tensor/attention/one.cu", "*OneRowTest*"),
    ("later_heads_of_many_sequences", "scan/delta_tokens.cu",
     "copy(stage.values, 2 * shape.key_heads + item.head);",
     "copy(stage.values, 2 * shape.key_heads + min(item.head, 9));", None, "*DeltaTest*"),
    ("slices_of_few_rows", "tensor/few/product_few.cu",
     "total[i][j] = wave == 0 ? slice_sum[0] : total[i][j] + slice_sum[0];",
     "total[i][j] = slice_sum[0];", None, "FewProductsTest.*"),
    ("second_gate_of_a_tile", "tensor/few/floats.cuh",
     "if (!real || lane != 0) return;", "if (!real || lane != 0 || in_tile == 1) return;",
     "tensor/few/product_few.cu", "*InputTest*"),
    ("later_squares_of_a_lane", "rows/sum_of_squares.cuh",
     "sum = fmaf(four.w, four.w, sum);", "sum = fmaf(i > 100 ? 0 : four.w, four.w, sum);",
     "tensor/few/product_few.cu", "*StackTest*"),
    ("second_matrix_of_a_launch", "tensor/many/layout.cuh",
     "column >= call.matrix[matrix + 1].begin) ++matrix;", "column > call.matrix[matrix + 1].begin) ++matrix;",
     "tensor/many/product_many.cu", "*ProductTest*"),
    ("slices_of_many_rows", "tensor/many/product_many.cu",
     "total[i] += acc[i];", "total[i] = slice == 1 ? acc[i] : total[i] + acc[i];", None, "*ProductTest*"),
    ("part_of_the_second_block", "tensor/many/product_many.cu",
     "Parts::kByBoxes ? 0 : rank * Parts::kRowsEach;", "0;", None, "ProductFormsTest.*"),
    ("last_tile_of_rows", "tensor/many/layout.cuh",
     "call.x.rows - Layout::kTokens));", "call.x.rows - Layout::kTokens - 1));",
     "tensor/many/product_many.cu", "ProductFormsTest.*"),
    ("turns_are_free", "tensor/many/forms.cc",
     "form.launch_ns + turns * (", "form.launch_ns + (turns > 0) * (", None, "ProductFormsTest.*"),
    ("divisions_are_free", "tensor/many/forms.cc",
     "Nanoseconds(kProductForms[i], first) + second.ns;", "Nanoseconds(kProductForms[i], first);", None,
     "ProductFormsTest.*"),
    ("columns_by_fours", "tensor/many/product_many.cu",
     " && weight.rows % 4 == 0;", ";", None, "ProductFormsTest.*"),
    ("pairs_of_odd_columns", "tensor/many/product_many.cu",
     "% 8 == 0 && out.stride % 2 == 0;", "% 8 == 0;", None, "ProductFormsTest.*"),
    ("bias_of_the_last_columns", "tensor/many/outputs.cuh",
     "min(column + j / 2 * 8 + j % 2, to.rows - 1)", "min(column + min(j, 29) / 2 * 8 + j % 2, to.rows - 1)",
     "tensor/many/product_many.cu", "*ProductTest*"),
    ("second_half_of_staged_columns", "tensor/many/outputs.cuh",
     "make_float2(total[first / 2 + 2 * i], total[first / 2 + 2 * i + 1]);", "make_float2(total[2 * i], total[2 * i + 1]);",
     "tensor/many/product_many.cu", "ProductFormsTest.*"),
    ("scale_of_a_second_token", "tensor/many/outputs.cuh",
     "call.x.scale[first + token] * to.scale", "call.x.scale[first + token / 2 * 2] * to.scale",
     "tensor/many/product_many.cu", "ProductFormsTest.*"),
    ("bias_of_the_rest", "tensor/many/product_many.cu",
     "if (rest.bias != nullptr) rest.bias += outputs;", "", None, "ProductFormsTest.*"),
    ("last_gate_is_not_kept", "tensor/round.cu",
     "[&](int j, int i) { *FourAt(y, row, i) = held[j]; });", "[&](int j, int i) { if (i < 300) *FourAt(y, row, i) = held[j]; });",
     None, "*StackTest*"),
    ("sums_of_norms_that_are_rounded", "tensor/round.cu",
     "if (kAdd) *FourAt(x, row, i) = held[j];", "if (kAdd && i < 200) *FourAt(x, row, i) = held[j];", None, "*StackTest*"),
    ("last_rotation_of_a_head", "tensor/attention/store_kv.cu",
     "for (int i = 0; i < pairs; ++i) {", "for (int i = 0; i < pairs - (pairs > 3 ? 1 : 0); ++i) {", None,
     "JointOpsTest.*"),
    ("queries_of_the_third_group", "tensor/attention/many.cu",
     "range.begin + group * kGroupQueries + first + (i + n) * kRows;",
     "range.begin + min(group, 1) * kGroupQueries + first + (i + n) * kRows;", None, "*AttentionTest*"),
    ("last_page_before_its_turn", "tensor/attention/many.cu",
     "  __syncwarp();\n  WarpgroupBarrier(1);\n  const std::byte* block", "  __syncwarp();\n  const std::byte* block", None,
     "*AttentionTest*"),
    ("what_lies_behind_the_last_row", "tensor/attention/many.cu",
     "const bool valid = row < rows && chunk * 8 < width;", "const bool valid = row <= rows && chunk * 8 < width;", None,
     "*AttentionTest*"),
    ("tops_of_the_second_row", "tensor/attention/many.cu",
     "__any_sync(~0u, joint[1].rises) != 0};", "__any_sync(~0u, joint[0].rises) != 0};", None, "*AttentionTest*"),
    ("sums_are_not_scaled", "tensor/attention/many.cu",
     "running_.sum[1] = joint[1].Join(running_.sum[1], sums[2]);", "running_.sum[1] += sums[2];", None, "*AttentionTest*"),
    ("gates_that_are_denormal", "tensor/attention/many.cu", "largest > 0x1p126f", "largest > 0x1p127f", None, "JointOpsTest.*"),
    ("stages_of_the_next_tile", "quantised/forms/warpgroup.cuh",
     "for (; step >= call.stages;", "for (; step > call.stages;", "quantised/forms/many_32.cu",
     "*QuantisedProducts.ManyRowsAreFewRows*"),
    ("slices_of_experts", "tensor/product_half.cu",
     "total[i][j][e] = one ? acc[i][j][e] : total[i][j][e] + acc[i][j][e];",
     "total[i][j][e] = one ? acc[i][j][e] : total[i][j][e];", None, "*ProductTest*:ProductGroups*"),
    ("last_page_not_seen", "tensor/attention/attention.cu",
     "    for (; page < page_end; ++page) {\n      WaitAsync<1>();",
     "    for (; page < page_end - (page_end > 4 ? 1 : 0); ++page) {\n      WaitAsync<1>();", None, "*AttentionTest*"),
    ("rows_stored_by_earlier_steps", "tensor/attention/attention.cu",
     "load_keys(page, {0, stored, stored});", "load_keys(page, {0, stored, stored - (stored > 20 ? 1 : 0)});", None, "*AttentionTest*"),
    ("last_keys_of_pages_of_prompts", "tensor/attention/many.cu",
     "values + k * (2048 >> 4), k == 0);", "values + k * (2048 >> 4), k % 3 == 0);", None, "*AttentionTest*"),
    ("joined_maxima", "tensor/attention/attention.cu",
     "if (lane >= d && other > upto) upto = other;",
     "if (lane > d && other > upto) upto = other;", None, "*AttentionTest*"),
    ("slot_of_later_blocks", "tensor/attention/store_kv.cu",
     "position % kKeys};", "position % kKeys ^ (position > 256 ? 1 : 0)};", None, "*AttentionTest*:JointOps*:*Stack*"),
    ("scale_of_the_first_group", "tensor/attention/kv_q8.cuh",
     "int(KvGroups(channels)) + first / kKvGroup];", "int(KvGroups(channels))];", "tensor/attention/attention.cu", "*AttentionTest*"),
    ("codes_of_prompts_unsigned", "tensor/attention/kv_q8.cuh",
     "codes ^ 0x80808080u;", "codes;", "tensor/attention/many.cu", "*AttentionTest*"),
    ("codes_of_the_last_group", "tensor/attention/store_kv.cu",
     "const bool has_channel = at < channels;", "const bool has_channel = at < channels - (at > 32 ? 1 : 0);", None, "*AttentionTest*"),
    ("choices_of_the_step_before", "choice/choices.cc",
     "*sign = ++sign_;", "*sign = sign_;", None, "StepGraphs*"),
    ("flags_of_first_rows", "rows/finite.cuh",
     "r < count; ++r", "r < 1; ++r", "choice/choose.cu", "StepGraphs*"),
    ("flags_behind_other_ops", "joined/joined_ops.cc",
     "FiniteSequences(stream_, flags_->step, flags_->x, flags_->finite);", "", None, "StepGraphs*"),
    ("flags_of_the_last_sequence", "choice/choose.cu",
     "i < told.flag_count; i += blockDim.x", "i < told.flag_count - 1; i += blockDim.x", None, "StepGraphs*"),
    ("what_was_said_before", "choice/choices.cc",
     "    if (!operand.empty()) std::memcpy", "    if (operand.size() % 8 != 7) std::memcpy", None, "DeviceChoice*"),
    ("choices_of_another_graph", "graphs/step_graphs.cc",
     "      launched.choices};", "      Choices::Asked{}};", None, "DeviceChoice*"),
    ("operands_of_the_step_before", "cuda_backend.cc",
     "upload_.data() + offset, Raw(device) + offset);", "upload_.data() + offset + (offset > 300 ? 16 : 0), Raw(device) + offset);",
     None, "DeviceChoice*"),
    ("sums_of_the_row_before", "choice/choose.cu",
     "i += work.parts * kPartThreads", "i += 2 * work.parts * kPartThreads", None, "DeviceChoice*"),
    ("biases_of_the_next_part", "choice/choose.cu",
     "token >= begin && token < begin + kPart", "token > begin && token < begin + kPart", None, "DeviceChoice*"),
    ("buckets_that_overlap", "choice/choose.cu",
     "counts[thread] = upto - own;", "counts[thread] = upto - own + (thread > 300 ? 1 : 0);", None, "DeviceChoice*"),
    ("members_of_other_fractions", "choice/finder.cuh",
     "FractionOf(distance) != members.fraction", "FractionOf(distance) < members.fraction", "choice/choose.cu",
     "DeviceChoice*"),
    ("members_with_other_bits", "choice/finder.cuh",
     ">> members.unknown != 0) return;", ">> members.unknown > 1) return;", "choice/choose.cu", "DeviceChoice*"),
    ("weights_without_carry", "choice/buckets.cuh",
     "static_cast<Count>(mass >> 32) + carried", "static_cast<Count>(mass >> 32)", "choice/choose.cu", "DeviceChoice*"),
    ("near_ones_of_some_parts", "choice/finder.cuh",
     "for (int s = 0; s < kSums; ++s) count +=", "for (int s = 0; s < 1; ++s) count +=", "choice/choose.cu", "DeviceChoice*"),
    ("the_largest_that_is_not_adjusted", "choice/choose.cu",
     "found.largest[kAdjusted] = MostOfBlock", "if (blockIdx.x > 0) found.largest[kAdjusted] = MostOfBlock", None,
     "DeviceChoice*"),
    ("rows_of_the_second_launch", "choice/choose.cu",
     "    to.chosen += row * to.words;", "    to.chosen += row * ToldView::kWords;", None, "DeviceChoice*"),
    ("arrays_of_the_step_before", "joined/joined_ops.cc",
     "  BringArrays(stream_, waiting.arrays);", "  if (waiting.rows) BringArrays(stream_, waiting.arrays);", None, "StepGraphs*"),
    ("arrays_of_the_start_before", "start/embed.cu",
     "i < beside.count; i +=", "i < beside.count - 4; i +=", None, "*StartTest*"),
    ("a_start_that_nothing_waits_for", "joined/joined_ops.cc",
     "few.hold_next = starts;", "few.hold_next = false;", None, "*StartTest*"),
    ("a_quantised_start_that_nothing_waits_for", "joined/joined_ops.cc",
     "one.hold_next = hold_next;", "one.hold_next = hold_next && one.hold_next;", None, "*StartTest*"),
    ("rows_of_the_step_before", "start/embed.cu",
     "from_host.tokens = arrays.AtHost(rows.tokens);", "from_host.tokens = rows.tokens;", None, "*StartTest*"),
    ("last_columns_of_wide_tiles", "tensor/many/outputs.cuh",
     "return StoreRows<kBoxed>(to, total);", "return StoreRows<kBoxed + 8>(to, total);", "tensor/many/product_many.cu", "ProductForms*"),
    ("scales_not_moved", "rows/keep.cu",
     "       2 * KvGroups(channels));", "       2 * KvGroups(channels) - 2);", None, "*KeepOps*"),
    # Packed weights.
    ("zeros_behind_a_piece", "packed/small.cu",
     "if (at < kUnits * kRun) CopyAsync16(to + at, from + at / kRun * kStride + at % kRun, true);",
     "CopyAsync16(to + at, from + at / kRun * kStride + at % kRun, at < kUnits * kRun);", None, "*InputTest*"),
    ("stage_used_before_it_came", "packed/few.cu",
     "WaitBarrier(&full_[stage], parities_ >> stage & 1);",
     "if (stage == 0) WaitBarrier(&full_[stage], parities_ >> stage & 1);", None, "*PackedProduct*"),
    ("tile_used_before_it_came", "packed/tiles.cu",
     "WaitAsync<S::kStages - 2>();", "WaitAsync<S::kStages - 1>();", None, "*PackedProduct*"),
    ("groups_added_in_another_order", "packed/tiles.cu",
     "for (int other = 1; other < others; ++other) {", "for (int other = others - 1; other > 0; --other) {", None, "*PackedProduct*"),
    ("last_chunk_of_a_short_row", "packed/tiles.cu",
     "const bool inside = column < left_;", "const bool inside = column + 8 < left_;", None, "*PackedProduct*"),
    ("slices_added_in_another_order", "packed/few.cu",
     "for (int s = 1; s < kAlong; ++s) {\n            if (s < here) total[i][j]",
     "for (int s = kAlong - 1; s > 0; --s) {\n            if (s < here) total[i][j]", None, "*PackedProduct*"),
    ("second_scale_of_a_unit", "packed/unit.cuh",
     "const __half2 scale = j < 2 ? __low2half2(both) : __high2half2(both);",
     "const __half2 scale = j < 3 ? __low2half2(both) : __high2half2(both);", "packed/many.cu", "*PackedProduct*"),
    ("tiles_of_the_experts_before", "packed/many.cuh",
     "      if (w < warp) before += sums[w];", "      if (w + 1 < warp) before += sums[w];", "packed/experts.cu",
     "*PackedProduct*Experts*"),
    ("rows_of_the_next_expert", "packed/many.cuh",
     "tiles.begin[expert + 1],\n            expert};", "call.rows,\n            expert};", "packed/experts.cu",
     "*PackedProduct*Experts*"),
    ("upper_rows_of_a_piece", "packed/chosen.cu",
     "sums[8 + lane / 4] = acc[2];", "sums[8 + lane / 4] = acc[3] * 0.5f;", None, "*MixtureTest*"),
    ("slices_of_a_chosen_row", "packed/chosen.cu",
     "for (int s = 1; s < slices; ++s) total", "for (int s = 1; s + (slices > 3) < slices; ++s) total", None, "*MixtureTest*"),
    ("upper_bits_of_six", "packed/unit.cuh",
     "AndOr(Moved<SixPlace(2 * j + 1) - 8>(), 0x03000300,", "AndOr(Moved<SixPlace(2 * j + 1) - 8>(), 0x01000100,",
     "packed/few.cu", "*PackedProduct*"),
    ("a_team_without_its_last_slice", "packed/many.cuh",
     "if (unit % kSliceUnits == 0) unit += (TeamOf<S>(call) - 1) * kSliceUnits;",
     "if (unit % kSliceUnits == 0) unit += TeamOf<S>(call) * kSliceUnits;", "packed/many.cu", "*PackedProduct*"),
    # Forms for blocks with little room, and what decides what a GPU computes.
    ("values_from_the_keys", "tensor/attention/attention.cu",
     "load(std::integral_constant<int, kValue>{}, page, kv.v_offset,",
     "load(std::integral_constant<int, kValue>{}, page, kv.k_offset,", None, "8.6:*AttentionTest*"),
    ("the_other_of_two_stages", "quantised/forms/many.cuh",
     "WaitForCopies<kStages - 2>();", "WaitForCopies<kStages == 2 ? 1 : kStages - 2>();",
     "quantised/forms/many_256.cu", "8.6:*QuantisedProducts*"),
    ("short_stages_read_as_long", "scan/lane_scan.cu",
     "room_ = min(left_, Operands::kTokens);", "room_ = min(left_, 16);", None, "*LaneScan*"),
    ("rows_of_the_upper_half", "tensor/this_core.cu",
     "pair(a, g + 8, 2 * t + 8)};", "pair(a, g, 2 * t + 8)};", None, "ThisTensorCore*"),
]


def mutated(mutant):
    name, path, old, new, _, _ = mutant
    text = (ROOT / "src" / CUDA / path).read_text()
    if text.count(old) != 1:
        raise ValueError(f"{name}: its text occurs {text.count(old)} times in {path}, not once")
    return text.replace(old, new)


def compile_command(build, source):
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if pathlib.Path(entry["file"]).resolve() == (ROOT / "src" / CUDA / source).resolve():
            return shlex.split(entry["command"]), entry["directory"]
    sys.exit(f"{build} has no command for {source}: configure it with -DREPRISE_CUDA=ON")


def tests_of(mutant):
    """What they are called; and what the GPU answers as: "8.6:*Tests*"."""
    capability, named, tests = mutant[5].partition(":")
    if not named or not re.fullmatch(r"\d+\.\d", capability):
        return mutant[5], {}
    return tests, {"REPRISE_GPU_AS": capability}


def program_of(mutant):
    """Choices are compared with those of the sampler, which the tests of kernels do not know."""
    return "sample_test" if mutant[5].startswith("DeviceChoice") else "cuda_test"


def link_command(build, program):
    commands = subprocess.run(["ninja", "-C", build, "-t", "commands", program], capture_output=True, text=True,
                              check=True).stdout.splitlines()
    return commands[-1]


def make(mutant, build, link, folder):
    """The tests with the mutant in them; None if they do not build."""
    name, path, _, _, source, _ = mutant
    overlay = folder / name
    file = overlay / CUDA / path
    file.parent.mkdir(parents=True)
    file.write_text(mutated(mutant))
    command, directory = compile_command(build, source or path)
    command[command.index("-o") + 1] = str(overlay / "mutant.o")
    # The last words are "-c SOURCE" or "-x cu -c SOURCE".
    at = command.index("-c") + 1
    if source is None:
        command[at] = str(file)
    else:  # a header: the .cu is copied beside it, so that its own folder does not come first
        command[at] = str(file.parent / pathlib.Path(source).name)
        pathlib.Path(command[at]).write_text((ROOT / "src" / CUDA / source).read_text())
    command.insert(1, f"-I{overlay}")
    tests = program_of(mutant)
    program = overlay / tests
    words = re.sub(rf"-o \S*{tests}\b", f"{overlay / 'mutant.o'} -o {program}", link[tests], count=1)
    for step in (shlex.join(command), words):
        done = subprocess.run(step, shell=True, cwd=directory, capture_output=True, text=True)
        if done.returncode != 0:
            return None, done.stderr[-1000:]
    return program, ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="mutants to try (default: all)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/dev", help="build folder")
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--check", action="store_true", help="only whether all apply")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    wanted = [m for m in MUTANTS if not arguments.names or m[0] in arguments.names]
    try:
        for mutant in wanted:
            mutated(mutant)
    except (ValueError, OSError) as error:
        sys.exit(str(error))
    if arguments.check:
        return print(f"{len(wanted)} mutants apply")
    build = arguments.build.resolve()
    link = {program: link_command(build, program) for program in ("cuda_test", "sample_test")}
    alive = 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        begin = time.monotonic()
        made = list(pool.map(lambda mutant: make(mutant, build, link, pathlib.Path(folder)), wanted))
        print(f"built in {time.monotonic() - begin:.0f} s", flush=True)
        for mutant, (program, error) in zip(wanted, made):
            begin = time.monotonic()
            if program is None:
                verdict = "DOES NOT BUILD: " + error
            elif arguments.build_only:
                verdict = "builds"
            else:
                tests, environment = tests_of(mutant)
                ran = subprocess.run([program, f"--gtest_filter={tests}", "--gtest_fail_fast"], cwd=ROOT,
                                     capture_output=True, text=True, timeout=300, env={**os.environ, **environment})
                failed = re.search(r"\[  FAILED  \] (\S+)", ran.stdout)
                verdict = f"killed by {failed[1] if failed else 'a crash'}" if ran.returncode else "SURVIVED"
            alive += not verdict.startswith(("killed", "builds"))
            print(f"{mutant[0]:32} {verdict} ({time.monotonic() - begin:.0f} s)", flush=True)
    print(f"{len(wanted) - alive} of {len(wanted)} {'build' if arguments.build_only else 'killed'}")
    sys.exit(alive > 0)


if __name__ == "__main__":
    main()
