// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "cli/commands.h"
#include "cli/loaded_model.h"
#include "cli/lora/lora.h"
#include "kernels/ops.h"
#include "model/adapter/adapter.h"
#include "model/live_state.h"
#include "state/packing.h"
#include "weights/format/safetensors.h"

namespace reprise::cli {
namespace {

// Tokens of one step where --split does not say.
constexpr size_t kPieceTokens = 256;

struct Options {
  ModelOptions model;
  std::string input;
  std::string output;
  std::vector<size_t> split;
  std::string snapshots = "f32";
  std::string lora;
};

Result<std::vector<TokenId>> ReadTokens(const std::string& path) {
  REPRISE_ASSIGN(const MappedFile file, MappedFile::Open(path));
  const auto tensors = SafetensorsFile::Parse(file.bytes());
  if (!tensors.ok()) return tensors.status().Annotate(path);
  auto tokens = tensors->ReadIds("tokens");
  if (!tokens.ok()) return tokens.status().Annotate(path);
  if (tokens->empty()) return InvalidArgument(path + ": there are no tokens");
  return tokens;
}

Status CheckTokens(const std::vector<TokenId>& tokens, const Model& model) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= model.vocab_size()) {
      return InvalidArgument("token " + std::to_string(i) + " is " + std::to_string(tokens[i]) +
                             ", outside the vocabulary of " + std::to_string(model.vocab_size()));
    }
  }
  return OkStatus();
}

// Lengths of the pieces: those asked for, then even ones for the rest.
Result<std::vector<size_t>> MakePieces(const std::vector<size_t>& split, size_t count) {
  std::vector<size_t> pieces;
  size_t done = 0;
  for (const size_t piece : split) {
    if (piece == 0 || piece > count - done) {
      return InvalidArgument("--split has a piece of " + std::to_string(piece) + " tokens where " +
                             std::to_string(count - done) + " are left");
    }
    pieces.push_back(piece);
    done += piece;
  }
  for (; done < count; done += pieces.back())
    pieces.push_back(std::min(kPieceTokens, count - done));
  return pieces;
}

Status WriteLogits(LoadedModel* loaded, std::span<const TokenId> tokens,
                   const std::vector<size_t>& pieces, bool rounds, const Adapter* adapter,
                   const std::string& path) {
  const Model& model = loaded->model();
  const int64_t vocab = model.vocab_size();
  SafetensorsWriter writer;
  writer.AddTensor("logits", DType::kF32, {int64_t(tokens.size()), vocab});
  REPRISE_TRY(writer.Open(path));
  REPRISE_ASSIGN(LiveState state, LiveState::Create(model.state_spec(), 1, int64_t(tokens.size()),
                                                    loaded->memory()));
  std::optional<int32_t> from;
  if (adapter != nullptr) from = adapter->CountsFrom(tokens);
  std::vector<float> logits;
  const StatePacking packing = StatePacking::Rounded(model.state_spec());
  std::vector<std::byte> stored(packing.bytes(model.state_spec().state_bytes()));
  for (const size_t piece : pieces) {
    std::vector<uint32_t> rows(piece);
    for (uint32_t i = 0; i < piece; ++i) rows[i] = i;
    SequenceSlice slice = state.Next(0, 0, uint32_t(piece));
    if (from) {
      slice.adapter = adapter;
      slice.adapted_from = uint32_t(std::max<int64_t>(0, *from - state.length(0)));
    }
    logits.resize(piece * size_t(vocab));
    REPRISE_TRY(
        model.Forward(loaded->context(),
                      {tokens.subspan(size_t(state.length(0)), piece), std::span(&slice, 1), rows},
                      state.memory(), logits.data()));
    if (!AllFinite(logits)) {
      return Internal("a logit of tokens " + std::to_string(state.length(0)) + " to " +
                      std::to_string(state.length(0) + int64_t(piece)) +
                      " is not finite: the weights are damaged or out of range");
    }
    state.Advance(0, int64_t(piece));
    if (rounds) {
      const auto place = state.memory().state(slice.state);
      packing.Read(loaded->memory(), place, 0, stored);
      packing.Write(loaded->memory(), place, 0, stored);
    }
    REPRISE_TRY(writer.Append(std::as_bytes(std::span(logits))));
  }
  return writer.Finish();
}

Status Run(const Options& options) {
  REPRISE_ASSIGN(const std::vector<TokenId> tokens, ReadTokens(options.input));
  REPRISE_ASSIGN(const std::vector<size_t> pieces, MakePieces(options.split, tokens.size()));
  REPRISE_ASSIGN(const std::unique_ptr<LoadedModel> loaded, LoadedModel::Load(options.model));
  REPRISE_TRY(CheckTokens(tokens, loaded->model()));
  const bool rounds = options.snapshots == "bf16";
  if (rounds && !loaded->model().state_spec().has_recurrent()) {
    return InvalidArgument("--snapshots bf16 rounds recurrent state, and this model has none");
  }
  REPRISE_ASSIGN(const AdapterPtr adapter, LoadLora(loaded.get(), options.lora));
  return WriteLogits(loaded.get(), tokens, pieces, rounds, adapter.get(), options.output);
}

}  // namespace

void DefineLogits(Flags* flags) {
  auto options = std::make_shared<Options>();
  AddModelOptions(flags, &options->model);
  flags->Add("--input", &options->input, "safetensors file with `tokens`, I32 [T]",
             {.required = true});
  flags->Add("--out", &options->output, "safetensors file to write `logits` to, F32 [T, V]",
             {.required = true});
  flags->Add("-c,--context", &options->model.context_tokens,
             "context that the model is loaded for; LongRoPE depends on it (default: the model's)",
             {.min = 1, .max = 1 << 24});
  flags->Add("--split", &options->split,
             "prefill in pieces of these lengths, for example 5,30,1 (the answer is the same)");
  flags->Add("--snapshots", &options->snapshots,
             "bf16: recurrent state is rounded at the end of each piece, as a server with that "
             "option stores it (the answer is another one)",
             {.one_of = {"f32", "bf16"}});
  flags->Add("--lora", &options->lora,
             "PATH[:SCALE]: with this LoRA adapter, a PEFT folder or a GGUF file");
  flags->SetAction([options] { return Run(*options); });
}

}  // namespace reprise::cli
